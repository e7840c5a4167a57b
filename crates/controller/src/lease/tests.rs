use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::SignedDuration;
use kapi::{
    Server,
    fault::{Fault, Faults},
};
use kube::{
    api::{DeleteParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde_json::json;
use tokio::time::{advance, sleep, timeout};
use tower::Layer;

use super::*;

const NAMESPACE: &str = "default";

fn own(generation: i64) -> Claim {
    Claim {
        name: "cluster-first".to_owned(),
        holder: "me".to_owned(),
        generation,
        owner: None,
    }
}

fn by(holder: &str) -> Claim {
    Claim {
        holder: holder.to_owned(),
        ..own(1)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn lease(holder: &str, generation: i64) -> Lease {
    let other = Claim {
        holder: holder.to_owned(),
        ..own(generation)
    };
    held(None, &other, at(1))
}

/// As somebody makes it who does not hold it.
fn blank() -> Lease {
    let metadata = ObjectMeta {
        name: Some("cluster-first".to_owned()),
        ..ObjectMeta::default()
    };
    Lease {
        metadata,
        spec: None,
    }
}

#[test]
fn a_claim_is_judged_by_holder_expiry_and_generation() {
    let (expired, dead) = (true, true);
    let table = [
        ("no lease", None, false, false, Verdict::Unknown),
        ("none for long", None, expired, false, Verdict::Take),
        ("blank", Some(blank()), false, dead, Verdict::Unknown),
        (
            "blank for long",
            Some(blank()),
            expired,
            false,
            Verdict::Take,
        ),
        ("own", Some(lease("me", 2)), false, false, Verdict::Renew),
        (
            "own, expired",
            Some(lease("me", 2)),
            expired,
            dead,
            Verdict::Renew,
        ),
        ("held", Some(lease("other", 2)), false, false, Verdict::Held),
        (
            "expired",
            Some(lease("other", 2)),
            expired,
            false,
            Verdict::Take,
        ),
        ("dead", Some(lease("other", 2)), false, dead, Verdict::Take),
        ("given up", Some(lease("", 2)), false, false, Verdict::Take),
        (
            "older, given up",
            Some(lease("", 1)),
            false,
            false,
            Verdict::Take,
        ),
        (
            "newer",
            Some(lease("other", 3)),
            expired,
            dead,
            Verdict::Fenced(3),
        ),
        (
            "newer, given up",
            Some(lease("", 3)),
            false,
            false,
            Verdict::Fenced(3),
        ),
    ];
    for (name, lease, expired, is_dead, expected) in table {
        let verdict = judge(lease.as_ref(), &own(2), expired, |_| is_dead);
        assert_eq!(verdict, expected, "{name}");
    }
}

#[test]
fn the_generations_of_another_owner_fence_nobody() {
    let of = |uid: &str, generation| Claim {
        owner: Some(OwnerReference {
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }),
        ..own(generation)
    };
    let lease = held(None, &of("old", 7), at(990));
    for (uid, expired, expected) in [
        ("old", false, Verdict::Fenced(7)),
        // Whoever holds it may still work.
        ("new", false, Verdict::Held),
        ("new", true, Verdict::Take),
    ] {
        let claim = Claim {
            holder: "another".to_owned(),
            ..of(uid, 2)
        };
        let verdict = judge(Some(&lease), &claim, expired, |_| false);
        assert_eq!(verdict, expected, "{uid}, expired: {expired}");
        if verdict == Verdict::Take {
            let taken = held(Some(&lease), &claim, at(1021));
            let older = Claim {
                generation: 1,
                ..claim
            };
            let verdict = judge(Some(&taken), &older, true, |_| true);
            assert_eq!(verdict, Verdict::Fenced(2));
        }
    }
}

#[test]
fn a_new_holder_counts_as_a_transition_and_a_renewal_does_not() {
    let first = lease("other", 1);
    let taken = held(Some(&first), &own(2), at(20));
    let renewed = held(Some(&taken), &own(2), at(30));
    let spec = |lease: &Lease| lease.spec.clone().unwrap();
    assert_eq!(spec(&taken).lease_transitions, Some(2));
    assert_eq!(spec(&renewed).lease_transitions, Some(2));
    assert_eq!(spec(&renewed).acquire_time, spec(&taken).acquire_time);
    assert_eq!(generation(&renewed), 2);
}

/// The API keeps the revision of an object that a write does not change.
#[test]
fn a_renewal_by_a_clock_that_stands_still_changes_the_lease() {
    for now in [Timestamp::MIN, at(30), Timestamp::MAX] {
        let taken = held(None, &own(2), now);
        let renewed = held(Some(&taken), &own(2), now);
        let again = held(Some(&renewed), &own(2), now);
        assert_ne!(json!(taken), json!(renewed), "{now}");
        assert_ne!(json!(renewed), json!(again), "{now}");
    }
}

#[test]
fn what_others_say_of_the_duration_is_bounded() {
    for (said, seconds) in [
        (None, 30),
        (Some(-5), 30),
        (Some(1), 30),
        (Some(60), 60),
        (Some(i32::MAX), 600),
    ] {
        let mut lease = lease("other", 1);
        lease.spec.as_mut().unwrap().lease_duration_seconds = said;
        assert_eq!(duration(&lease), Duration::from_secs(seconds), "{said:?}");
    }
}

/// The embedded API, and time that passes as it is told to.
struct World {
    server: Server,
    /// What the holder's machine slept.
    slept: Arc<AtomicU64>,
}

impl World {
    async fn new() -> Self {
        let server = Server::in_memory(&[]).await.unwrap();
        Self {
            server,
            slept: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        Client::new(self.server.router(), NAMESPACE)
    }

    fn candidate(&self, holder: &str) -> Candidate {
        self.behind(holder, &Faults::when(|_| None))
    }

    async fn deleted(&self) {
        namespaced::<Lease>(&self.client())
            .delete("cluster-first", &DeleteParams::default())
            .await
            .unwrap();
    }

    async fn made(&self, lease: &Lease) {
        namespaced::<Lease>(&self.client())
            .create(&PostParams::default(), lease)
            .await
            .unwrap();
    }

    fn behind(&self, holder: &str, faults: &Faults) -> Candidate {
        let client = Client::new(faults.layer(self.server.router()), NAMESPACE);
        Candidate::new(client, NAMESPACE, by(holder), |_| false).by(self.clock())
    }

    /// Goes with the paused time, and with the sleep of the machine besides.
    fn clock(&self) -> BootClock {
        let (slept, start) = (Arc::clone(&self.slept), Instant::now());
        BootClock::of(move || {
            let slept = Duration::from_secs(slept.load(Ordering::SeqCst));
            Duration::from_secs(1000) + start.elapsed() + slept
        })
    }

    fn sleep(&self, seconds: u64) {
        self.slept.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Writes the time of the renewal as a holder with another clock does.
    async fn renewed(&self, time: Timestamp) {
        let api: Api<Lease> = namespaced(&self.client());
        let patch = json!({"spec": {"renewTime": MicroTime(time)}});
        api.patch(
            "cluster-first",
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .unwrap();
    }

    async fn holder(&self) -> Option<String> {
        let lease = namespaced::<Lease>(&self.client())
            .get("cluster-first")
            .await;
        holder(&lease.unwrap()).map(ToOwned::to_owned)
    }
}

fn namespaced<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Tries each second, and tells after how many seconds the Lease was taken.
async fn tries(candidate: &mut Candidate, limit: u64) -> Option<u64> {
    let start = Instant::now();
    while start.elapsed() <= Duration::from_secs(limit) {
        match candidate.attempt().await {
            Ok(()) => return Some(start.elapsed().as_secs()),
            Err(Error::Held { .. } | Error::Unknown { .. }) => {
                advance(Duration::from_secs(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_lease_expires_by_what_was_seen_here_whatever_its_holder_wrote() {
    for skew in [-86_400 * 365, -300, -31, 0, 31, 300, 86_400 * 365] {
        let world = World::new().await;
        world.candidate("other").first().attempt().await.unwrap();
        let there = Timestamp::now() + SignedDuration::from_secs(skew);
        world.renewed(there).await;
        let taken = tries(&mut world.candidate("me"), 60).await;
        assert_eq!(taken, Some(31), "a clock that is {skew} s off");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_renews_by_any_clock_keeps_its_lease() {
    for skew in [-300, 0, 300] {
        let world = World::new().await;
        world.candidate("other").first().attempt().await.unwrap();
        let mut me = world.candidate("me");
        for round in 0..12 {
            // It is set back by more than a renewal each time.
            let there = Timestamp::now() + SignedDuration::from_secs(skew - 20 * round);
            world.renewed(there).await;
            assert_eq!(tries(&mut me, 28).await, None, "{skew} s, round {round}");
        }
    }
}

/// What it saw before its sleep is not what it saw for the whole of it: a holder that slept beside it has its time to renew.
#[tokio::test(start_paused = true)]
async fn who_wants_a_lease_observes_nothing_while_asleep() {
    let world = World::new().await;
    world.candidate("other").first().attempt().await.unwrap();
    let mut me = world.candidate("me");
    assert_eq!(tries(&mut me, 5).await, None);
    world.sleep(3600);
    assert_eq!(tries(&mut me, 5).await, None);
    assert!(tries(&mut me, 60).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_known_to_be_dead_is_not_waited_for() {
    let world = World::new().await;
    world.candidate("dead").first().attempt().await.unwrap();
    let is_dead = |holder: &str| holder == "dead";
    let mut me = Candidate::new(world.client(), NAMESPACE, by("me"), is_dead);
    me.attempt().await.unwrap();
    assert_eq!(world.holder().await.as_deref(), Some("me"));
}

#[tokio::test(start_paused = true)]
async fn a_hold_lasts_as_long_as_it_is_renewed_and_is_given_up() {
    let world = World::new().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let mut candidate = world.candidate("me").first();
    let mut hold = candidate
        .take(move |end| tell.lock().unwrap().push(end))
        .await
        .unwrap();
    let proof = hold.proof();
    assert!(timeout(Duration::from_mins(5), hold.lost()).await.is_err());
    assert!(proof.holds());
    let ends = told.lock().unwrap().clone();
    assert!(ends.len() > 25, "{ends:?}");
    assert!(ends.is_sorted());
    hold.release().await;
    assert!(!proof.holds());
    assert_eq!(world.holder().await, None);
    world.candidate("other").attempt().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_partition_ends_the_hold_before_anybody_may_take_the_lease() {
    for reaches in [true, false] {
        let world = World::new().await;
        // The last renewals reach the API and their answers do not, or nothing gets through.
        let cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let faults = Faults::when({
            let cut = Arc::clone(&cut);
            move |request| {
                let writes = request.method == "PUT" && reaches;
                let fault = if writes {
                    Fault::LostAnswer
                } else {
                    Fault::Latency(Duration::from_mins(1))
                };
                (cut.load(Ordering::SeqCst) && (writes || !reaches)).then_some(fault)
            }
        });
        let mut holder = world.behind("other", &faults).first();
        let mut hold = holder.take(|_| {}).await.unwrap();
        let proof = hold.proof();
        sleep(Duration::from_secs(15)).await;
        let begin = Instant::now();
        cut.store(true, Ordering::SeqCst);
        let error = timeout(Duration::from_mins(2), hold.lost()).await.unwrap();
        assert!(matches!(error, Error::Lapsed { .. }), "{error}");
        let lapsed = begin.elapsed();
        assert!(lapsed < PROVEN + Duration::from_secs(1), "{lapsed:?}");
        assert!(!proof.holds());
        // The other side sees the last renewal that reached it, and waits from there.
        let mut me = world.candidate("me");
        let taken = tries(&mut me, 60).await.unwrap();
        assert!(taken >= 30, "{taken}");
    }
}

/// One holder and one that waits, each by its own clocks, and the API cut off for a minute: at no time do both hold.
#[tokio::test(start_paused = true)]
async fn never_do_two_hold_it() {
    let world = World::new().await;
    let cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let faults = Faults::when({
        let cut = Arc::clone(&cut);
        move |_| cut.load(Ordering::SeqCst).then_some(Fault::Internal)
    });
    let first = world
        .behind("first", &faults)
        .first()
        .take(|_| {})
        .await
        .unwrap();
    let mut second = world.candidate("second");
    cut.store(true, Ordering::SeqCst);
    for second_of_partition in 0..60 {
        let taken = second.attempt().await.is_ok();
        assert!(
            !(taken && first.proof().holds()),
            "both, {second_of_partition} s into the partition"
        );
        if taken {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("nobody takes it");
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_wakes_up_finds_its_time_over_before_it_does_anything() {
    let world = World::new().await;
    let mut hold = world.candidate("me").first().take(|_| {}).await.unwrap();
    let proof = hold.proof();
    sleep(Duration::from_secs(9)).await;
    world.sleep(10);
    assert!(proof.holds(), "a nap");
    world.sleep(60);
    assert!(!proof.holds(), "without a look at the API");
    let error = timeout(Duration::from_secs(1), hold.lost()).await.unwrap();
    assert!(matches!(error, Error::Lapsed { .. }), "{error}");
    world.sleep(0);
    assert!(!proof.holds());
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_somebody_else_had_in_between_is_lost() {
    for given_up in [false, true] {
        let world = World::new().await;
        let mut hold = world.candidate("me").first().take(|_| {}).await.unwrap();
        let is_dead = |_: &str| true;
        let mut other = Candidate::new(world.client(), NAMESPACE, by("other"), is_dead);
        other.attempt().await.unwrap();
        if given_up {
            other.release().await.unwrap();
        }
        let error = timeout(Duration::from_secs(15), hold.lost()).await.unwrap();
        assert!(
            matches!(error, Error::Lost { .. } | Error::Held { .. }),
            "{error}"
        );
        assert!(!hold.proof().holds());
        let now = if given_up { None } else { Some("other") };
        assert_eq!(world.holder().await.as_deref(), now);
    }
}

/// Whoever held it must not go on beside the next one.
#[tokio::test(start_paused = true)]
async fn a_hold_whose_lease_was_deleted_is_lost() {
    let world = World::new().await;
    let mut hold = world.candidate("me").first().take(|_| {}).await.unwrap();
    world.deleted().await;
    let error = timeout(Duration::from_secs(15), hold.lost()).await.unwrap();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(!hold.proof().holds());
    let leases = namespaced::<Lease>(&world.client());
    let there = leases.get_opt("cluster-first").await.unwrap();
    assert!(there.is_none());
}

/// As by the deletion of its owner in the foreground, while its holder is cut off from the API.
#[tokio::test(start_paused = true)]
async fn never_do_two_hold_a_lease_that_was_deleted() {
    for is_made_anew in [false, true] {
        let world = World::new().await;
        let cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let faults = Faults::when({
            let cut = Arc::clone(&cut);
            move |_| cut.load(Ordering::SeqCst).then_some(Fault::Internal)
        });
        let holder = world.behind("other", &faults).first().take(|_| {}).await;
        let holder = holder.unwrap();
        cut.store(true, Ordering::SeqCst);
        world.deleted().await;
        let mut me = world.candidate("me");
        if is_made_anew {
            // What was seen before it was there does not count.
            assert_eq!(tries(&mut me, 3).await, None);
            world.made(&blank()).await;
        }
        let begin = Instant::now();
        while me.attempt().await.is_err() {
            assert!(begin.elapsed() < Duration::from_mins(1), "nobody takes it");
            sleep(Duration::from_secs(1)).await;
        }
        assert!(!holder.proof().holds(), "both, {:?} later", begin.elapsed());
        let waited = begin.elapsed();
        assert!(waited > DURATION, "{waited:?}, anew: {is_made_anew}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_one_of_all_and_the_next_after_a_release_wait_for_nobody() {
    for is_made_before in [false, true] {
        let world = World::new().await;
        if is_made_before {
            world.made(&blank()).await;
        }
        let mut first = world.candidate("first").first();
        first.attempt().await.unwrap();
        // Who says so beside a holder waits for it all the same.
        let second = world.candidate("second").first().attempt().await;
        assert!(matches!(second, Err(Error::Held { .. })), "{second:?}");
        first.release().await.unwrap();
        world.candidate("third").attempt().await.unwrap();
        // It is the first only once.
        world.deleted().await;
        let again = first.attempt().await;
        assert!(matches!(again, Err(Error::Unknown { .. })), "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_for_everybody_is_outlived() {
    let world = World::new().await;
    let away = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let faults = Faults::when({
        let away = Arc::clone(&away);
        move |_| away.load(Ordering::SeqCst).then_some(Fault::Internal)
    });
    let is_away =
        |error: &kube::Error| matches!(error, kube::Error::Api(answer) if answer.code == 500);
    let mut candidate = world.behind("me", &faults).first().outliving(is_away);
    let mut hold = candidate.take(|_| {}).await.unwrap();
    away.store(true, Ordering::SeqCst);
    assert!(timeout(Duration::from_hours(1), hold.lost()).await.is_err());
    assert!(hold.proof().holds());
    away.store(false, Ordering::SeqCst);
    assert!(timeout(Duration::from_mins(1), hold.lost()).await.is_err());
    // It was stopped while the API was away: how long, it does not know.
    away.store(true, Ordering::SeqCst);
    assert!(timeout(Duration::from_mins(1), hold.lost()).await.is_err());
    world.sleep(7);
    let error = timeout(Duration::from_secs(1), hold.lost()).await.unwrap();
    assert!(matches!(error, Error::Lapsed { .. }), "{error}");
}

#[tokio::test]
async fn nobody_listening_is_told_from_no_answer() {
    // Bound and given back: nobody listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = |address| {
        let url = format!("http://{address}").parse().unwrap();
        Client::try_from(kube::Config::new(url)).unwrap()
    };
    let error = namespaced::<Lease>(&client(address))
        .get("first")
        .await
        .unwrap_err();
    assert!(is_refused(&error), "{error:?}");

    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let accept = async { drop(silent.accept().await.unwrap()) };
    let api = namespaced::<Lease>(&client(address));
    let (error, ()) = tokio::join!(api.get("first"), accept);
    assert!(!is_refused(&error.unwrap_err()));
}
