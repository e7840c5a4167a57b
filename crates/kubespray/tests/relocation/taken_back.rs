//! Moves that are taken back.

use axum::body::{Body, to_bytes};

use super::*;

/// Nothing is there, and everything here is as it was before.
async fn assert_back(
    before: &BTreeMap<String, Value>,
    here: &Server,
    there: &Server,
    namespace: &str,
) {
    assert_eq!(&picture(&here.client(), namespace).await, before);
    assert_eq!(picture(&there.client(), namespace).await, BTreeMap::new());
    assert_at_work(here, namespace).await;
    assert_eq!(lease(here, namespace).await, None);
    let (source, target) = (here.side(namespace).await, there.side(namespace).await);
    let again = take_back(&source, Some(&target)).await.unwrap();
    assert_eq!(again.outcome, Outcome::NothingToTakeBack);
}

async fn assert_at_work(here: &Server, namespace: &str) {
    for (kind, object) in objects(&here.client(), namespace).await {
        let (name, annotations) = (object.name_any(), object.annotations());
        assert!(!annotations.contains_key(MOVING), "{kind:?}/{name}");
        assert!(!annotations.contains_key(MOVED), "{kind:?}/{name}");
    }
}

/// Who holds the cluster's Lease.
async fn lease(here: &Server, namespace: &str) -> Option<String> {
    let found = Api::<Lease>::namespaced(here.client(), namespace)
        .get_opt(&kubespray::names::lease_name("first"))
        .await;
    found.unwrap()?.spec?.holder_identity
}

/// Moves a new cluster and stops before a write. Whether there was one, and what was there before.
async fn move_until(
    here: &Server,
    there: &Server,
    namespace: &str,
    write: usize,
) -> (bool, BTreeMap<String, Value>) {
    populate(&here.client(), namespace).await;
    let before = picture(&here.client(), namespace).await;
    let mut watch = Watch::over(here, there, namespace, Some(write)).await;
    // What a move itself may not do is watched elsewhere.
    Arc::get_mut(&mut watch).unwrap().names.clear();
    let (source, target) = watch.sides(here, there).await;
    let wish = wish();
    let moved = carry_over(&source, &target, &wish);
    let moved = watch.unless_stopped(moved).await;
    (moved.is_none(), before)
}

async fn is_moved(here: &Server, namespace: &str) -> bool {
    let cluster = Api::<Cluster>::namespaced(here.client(), namespace)
        .get_opt("first")
        .await
        .unwrap();
    cluster.is_none_or(|cluster| cluster.annotations().contains_key(MOVED))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_is_taken_back_from_wherever_it_was_stopped_or_refused_after_its_point_of_no_return()
{
    let (here, there) = (Server::start().await, Server::start().await);
    let (mut taken, mut refused) = (0, 0);
    for write in 1.. {
        let namespace = format!("team-{write}");
        let (stopped, before) = move_until(&here, &there, &namespace, write).await;
        if !stopped {
            break;
        }
        let watch = Watch::over(&here, &there, &namespace, None).await;
        let (source, target) = watch.sides(&here, &there).await;
        let pictures = async || {
            let here = picture(&here.client(), &namespace).await;
            (here, picture(&there.client(), &namespace).await)
        };
        if is_moved(&here, &namespace).await {
            let stood = pictures().await;
            let error = take_back(&source, Some(&target)).await;
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains("the cluster now"), "{error}");
            assert_eq!(pictures().await, stood);
            assert_eq!(watch.writes.load(Ordering::SeqCst), 0);
            carry_over(&source, &target, &wish()).await.unwrap();
            refused += 1;
        } else {
            let back = take_back(&source, Some(&target)).await.unwrap();
            let expected = if write == 1 {
                Outcome::NothingToTakeBack
            } else {
                Outcome::TakenBack
            };
            assert_eq!(back.outcome, expected, "{write}");
            assert_back(&before, &here, &there, &namespace).await;
            taken += 1;
        }
        watch.assert_no_violation();
    }
    assert!(taken > 15 && refused > 10, "{taken}, {refused}");
}

/// Holds a move just before its point of no return.
#[derive(Default)]
struct Gate {
    reached: Notify,
    open: Notify,
}

impl Gate {
    /// The side that is left, where the first write that marks something as moved for good waits for the gate.
    async fn before(self: &Arc<Self>, here: &Server, namespace: &str) -> Side {
        let gate = Arc::clone(self);
        let held = Arc::new(AtomicUsize::new(0));
        let hold = move |request: Request, next: Next| {
            let (gate, held) = (Arc::clone(&gate), Arc::clone(&held));
            async move {
                if *request.method() != Method::PATCH {
                    return next.run(request).await;
                }
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let is_commit = String::from_utf8_lossy(&body).contains(MOVED);
                if is_commit && held.fetch_add(1, Ordering::SeqCst) == 0 {
                    gate.reached.notify_one();
                    gate.open.notified().await;
                }
                next.run(Request::from_parts(parts, Body::from(body))).await
            }
        };
        let router = here.api.router().layer(axum::middleware::from_fn(hold));
        Side::find(Client::new(router, "default"), namespace)
            .await
            .unwrap()
    }
}

/// Moves until everything is copied and nothing is marked for good.
async fn copied(here: &Server, there: &Server, namespace: &str) -> BTreeMap<String, Value> {
    populate(&here.client(), namespace).await;
    let before = picture(&here.client(), namespace).await;
    let gate = Arc::new(Gate::default());
    let source = gate.before(here, namespace).await;
    let (target, wish) = (there.side(namespace).await, wish());
    tokio::select! {
        moved = carry_over(&source, &target, &wish) => panic!("{moved:?}"),
        () = gate.reached.notified() => before,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_that_was_stopped_at_any_write_is_ended_by_the_same_command() {
    let (here, there) = (Server::start().await, Server::start().await);
    for write in 1.. {
        let namespace = format!("team-{write}");
        let before = copied(&here, &there, &namespace).await;
        let watches = [
            Watch::over(&here, &there, &namespace, Some(write)).await,
            Watch::over(&here, &there, &namespace, None).await,
        ];
        let mut stopped = false;
        for watch in &watches {
            let (source, target) = watch.sides(&here, &there).await;
            let back = take_back(&source, Some(&target));
            match watch.unless_stopped(back).await {
                Some(back) => assert!(back.is_ok(), "{write}: {back:?}"),
                None => stopped = true,
            }
            watch.assert_no_violation();
        }
        assert_back(&before, &here, &there, &namespace).await;
        if !stopped {
            assert!(write > 10, "{write}");
            let (source, target) = (here.side(&namespace).await, there.side(&namespace).await);
            carry_over(&source, &target, &wish()).await.unwrap();
            assert_moved(&before, &here, &there, &namespace).await;
            break;
        }
    }
}

#[tokio::test]
async fn a_move_that_is_still_at_work_cannot_pass_its_point_of_no_return_behind_an_abort() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    let before = picture(&here.client(), TEAM).await;
    let gate = Arc::new(Gate::default());
    let (held, target) = (gate.before(&here, TEAM).await, there.side(TEAM).await);
    let source = here.side(TEAM).await;
    let abort = async {
        gate.reached.notified().await;
        let back = take_back(&source, Some(&target)).await.unwrap();
        gate.open.notify_one();
        back
    };
    let wish = wish();
    let (moved, back) = tokio::join!(carry_over(&held, &target, &wish), abort);
    assert_eq!(back.outcome, Outcome::TakenBack);
    let error = format!("{:#}", moved.unwrap_err());
    assert!(error.contains("taken back"), "{error}");
    assert_back(&before, &here, &there, TEAM).await;
}

#[tokio::test]
async fn the_lease_of_a_runner_that_has_not_paused_stays_its_own() {
    let (here, there) = (Server::start().await, Server::start().await);
    populate(&here.client(), TEAM).await;
    claimed(&here).await;
    let (source, target) = (here.side(TEAM).await, there.side(TEAM).await);
    let mut wish = wish();
    wish.timeout = Duration::ZERO;
    let error = carry_over(&source, &target, &wish).await;
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("--abort"), "{error}");
    take_back(&source, Some(&target)).await.unwrap();
    assert_at_work(&here, TEAM).await;
    assert_eq!(lease(&here, TEAM).await.as_deref(), Some(RUNNER));
}

#[tokio::test]
async fn without_the_other_side_what_is_here_goes_on_and_the_copies_are_deleted_later() {
    let (here, there) = (Server::start().await, Server::start().await);
    let before = copied(&here, &there, TEAM).await;
    let (source, target) = (here.side(TEAM).await, there.side(TEAM).await);
    let back = take_back(&source, None).await.unwrap();
    assert_eq!(back.outcome, Outcome::TakenBack);
    assert!(back.warnings[0].contains("copies there"), "{back:?}");
    assert_at_work(&here, TEAM).await;
    assert_eq!(picture(&here.client(), TEAM).await, before);
    let copy = Api::<Cluster>::namespaced(there.client(), TEAM)
        .get("first")
        .await
        .unwrap();
    assert!(copy.annotations().contains_key(MOVING));

    let back = take_back(&source, Some(&target)).await.unwrap();
    assert_eq!(back.outcome, Outcome::TakenBack);
    assert_back(&before, &here, &there, TEAM).await;
}

#[tokio::test]
async fn an_abort_that_cannot_be_right_changes_nothing() {
    let (here, there) = (Server::start().await, Server::start().await);
    let other = Server::start().await;
    let (source, target) = (here.side(TEAM).await, there.side(TEAM).await);
    let refused = async |source: &Side, target: &Side| {
        let pictures = async || {
            let here = picture(&here.client(), TEAM).await;
            (here, picture(&there.client(), TEAM).await)
        };
        let before = pictures().await;
        let error = take_back(source, Some(target)).await.unwrap_err();
        assert_eq!(pictures().await, before);
        format!("{error:#}")
    };
    let empty = refused(&source, &target).await;
    assert!(empty.contains("nothing can be taken back"), "{empty}");

    copied(&here, &there, TEAM).await;
    let elsewhere = refused(&source, &other.side(TEAM).await).await;
    assert!(
        elsewhere.contains("annotation windlass.dev/moving is \"being moved to")
            && elsewhere.contains("--to-kubeconfig"),
        "{elsewhere}"
    );
    let reversed = refused(&target, &source).await;
    assert!(reversed.contains("from the other one"), "{reversed}");
    let moving = json!({"metadata": {"annotations": {MOVING: null}}});
    Api::<Run>::namespaced(there.client(), TEAM)
        .patch(
            "first-create-1",
            &PatchParams::default(),
            &Patch::Merge(&moving),
        )
        .await
        .unwrap();
    let live = refused(&source, &target).await;
    assert!(live.contains("Run/first-create-1"), "{live}");
}
