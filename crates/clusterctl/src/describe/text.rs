//! The tree as lines of text.

use jiff::Timestamp;

use super::{Condition, Fact, Node, Role, State};

/// Which conditions of an object stand below it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// None.
    Nothing,
    /// Those that are not as they are to be.
    Failing,
    /// All.
    All,
}

/// The lines, none longer than the width: first what stands in the way, then the tree.
pub fn lines(root: &Node, shown: Shown, now: Timestamp, width: usize) -> Vec<String> {
    let title = root.title();
    let unfinished = root.unfinished();
    let mut told = match unfinished.as_slice() {
        [] => vec![format!("{title} waits for nothing.")],
        _ => vec![format!("{title} waits for:")],
    };
    let first = unfinished.iter().take(MOST_FACTS).map(|node| Row {
        name: format!("  {}", node.title()),
        ready: String::new(),
        ..Row::of(node, now)
    });
    told.extend(laid_out(&first.collect::<Vec<_>>()));
    let more = unfinished.len().saturating_sub(MOST_FACTS);
    if more > 0 {
        told.push(format!("  and {more} more"));
    }
    told.push(String::new());
    let mut rows = vec![Row {
        name: "NAME".into(),
        ready: "READY".into(),
        state: "STATE".into(),
        since: "SINCE".into(),
        waits_for: "WAITS FOR".into(),
    }];
    put(root, "", "", shown, now, &mut rows);
    told.extend(laid_out(&rows));
    told.iter().map(|line| fit(line, width)).collect()
}

fn put(node: &Node, own: &str, below: &str, shown: Shown, now: Timestamp, rows: &mut Vec<Row>) {
    let role = match node.role {
        Some(Role::Infrastructure) => "infrastructure: ",
        Some(Role::ControlPlane) => "control plane: ",
        Some(Role::Bootstrap) => "bootstrap: ",
        None => "",
    };
    rows.push(Row {
        name: format!("{own}{role}{}", node.title()),
        ..Row::of(node, now)
    });
    let line = if node.children.is_empty() {
        "  "
    } else {
        "│ "
    };
    let conditions = node.conditions.iter().filter(|condition| match shown {
        Shown::Nothing => false,
        Shown::Failing => !condition.is_good(),
        Shown::All => true,
    });
    rows.extend(conditions.map(|condition| Row {
        name: format!("{below}{line}  {}", condition.kind),
        ..Row::of_condition(condition, now)
    }));
    let last = node.children.len().saturating_sub(1);
    for (at, child) in node.children.iter().enumerate() {
        let (branch, rest) = if at == last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        let (own, below) = (format!("{below}{branch}"), format!("{below}{rest}"));
        put(child, &own, &below, shown, now, rows);
    }
}

struct Row {
    name: String,
    ready: String,
    state: String,
    since: String,
    waits_for: String,
}

impl Row {
    fn of(node: &Node, now: Timestamp) -> Self {
        let ready = node.replicas;
        Self {
            name: String::new(),
            ready: ready.map_or_else(String::new, |it| format!("{}/{}", it.ready, it.wanted)),
            state: node.state.word().into(),
            since: node.since.map_or_else(String::new, |since| age(since, now)),
            waits_for: node.waits_for.as_ref().map(Fact::text).unwrap_or_default(),
        }
    }

    fn of_condition(condition: &Condition, now: Timestamp) -> Self {
        let why = [&condition.severity, &condition.reason];
        let why: Vec<_> = why.into_iter().flatten().map(String::as_str).collect();
        let said = [
            why.join(", "),
            condition.message.clone().unwrap_or_default(),
        ];
        let said: Vec<_> = said.into_iter().filter(|text| !text.is_empty()).collect();
        let since = condition.since;
        Self {
            name: String::new(),
            ready: String::new(),
            state: condition.status.clone(),
            since: since.map_or_else(String::new, |since| age(since, now)),
            waits_for: said.join(": "),
        }
    }

    fn cells(&self) -> [&str; 4] {
        [&self.name, &self.ready, &self.state, &self.since]
    }
}

/// Rows in columns; one in which nothing stands has no width.
fn laid_out(rows: &[Row]) -> Vec<String> {
    let mut widths = [0; 4];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.cells()) {
            *width = (*width).max(cell.chars().count()).min(MOST_COLUMN);
        }
    }
    let line = |row: &Row| {
        let cells = row.cells().into_iter().zip(widths);
        let cells = cells.filter(|(_, width)| *width > 0);
        let mut line = String::new();
        for (cell, width) in cells {
            line += &format!("{cell:<width$}   ");
        }
        line += &row.waits_for;
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

impl Node {
    /// What it is called in a line.
    fn title(&self) -> String {
        match self.names.as_slice() {
            [] => self.kind.clone(),
            [name] => format!("{}/{name}", self.kind),
            many => {
                let shown = many.get(..MOST_NAMES).unwrap_or(many).join(", ");
                let more = if many.len() > MOST_NAMES { ", …" } else { "" };
                format!("{} {}s: {shown}{more}", many.len(), self.kind)
            }
        }
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Paused => "paused",
            Self::Deleting => "deleting",
            Self::Missing => "missing",
            Self::Unread => "unread",
            Self::Silent => "silent",
        }
    }
}

impl Fact {
    fn text(&self) -> String {
        let by = match (&self.condition, &self.reason) {
            (Some(condition), Some(reason)) => format!("{condition} ({reason}): "),
            (Some(by), None) | (None, Some(by)) => format!("{by}: "),
            (None, None) => String::new(),
        };
        format!("{by}{}", self.message)
    }
}

/// How long ago, as kubectl says it: `45s`, `12m`, `5h`, `3d`.
fn age(since: Timestamp, now: Timestamp) -> String {
    match now.duration_since(since).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// So many facts stand above the tree.
const MOST_FACTS: usize = 5;
/// So many names of one line.
const MOST_NAMES: usize = 3;
/// Longer names push what stands behind them.
const MOST_COLUMN: usize = 90;
