//! An API that is away for a while: its server is started again, or exchanged.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::backoff::jittered;

/// How long to wait before it is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// Whether the same question may be answered in a while: nobody has answered, or only that this is not the moment.
pub fn is_away(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            !(400..500).contains(&status.code) || [408, 409, 429].contains(&status.code)
        }
        _ => true,
    }
}

/// Asks until there is an answer, as long as the API is away and for so long at most.
///
/// # Errors
///
/// The API refuses, or was away all the time.
pub async fn outlive<T, E, F>(
    limit: Duration,
    is_away: impl Fn(&E) -> bool,
    ask: impl Fn() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            Err(error) if is_away(&error) && began.elapsed() < limit => {
                tokio::time::sleep(jittered(AGAIN)).await;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn one_that_refuses_is_not_away() {
        let answered = |code: u16| {
            let status = kube::core::Status::failure("no", "No").with_code(code);
            is_away(&kube::Error::Api(Box::new(status)))
        };
        for code in [408, 409, 429, 500, 503] {
            assert!(answered(code), "{code}");
        }
        for code in [400, 401, 403, 404, 413, 422] {
            assert!(!answered(code), "{code}");
        }
        assert!(is_away(&kube::Error::Service("connection refused".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_until_it_is_back_and_a_refusal_is_an_answer() {
        let asked = Cell::new(0);
        let ask = |back: u32, answer: Result<u32, &'static str>| {
            let asked = &asked;
            move || async move {
                asked.set(asked.get() + 1);
                if asked.get() < back {
                    Err("away")
                } else {
                    answer
                }
            }
        };
        let limit = Duration::from_mins(1);
        let away = |error: &&str| *error == "away";
        assert_eq!(outlive(limit, away, ask(5, Ok(7))).await, Ok(7));
        assert_eq!(asked.replace(0), 5);
        assert_eq!(outlive(limit, away, ask(2, Err("no"))).await, Err("no"));
        assert_eq!(asked.replace(0), 2);
        let never = outlive(Duration::ZERO, away, ask(9, Ok(7))).await;
        assert_eq!(never, Err("away"));
        assert_eq!(asked.get(), 1);
    }
}
