//! Random cases on the embedded API and on a real one. Root is needed.
//!
//! `WINDLASS_DIFFERENTIAL_SEED` takes another seed than the usual one, `WINDLASS_DIFFERENTIAL_CASES` another number of
//! cases of each sort, and `WINDLASS_DIFFERENTIAL_ROUNDS` goes on with as many seeds, whatever differs.

#![expect(clippy::unwrap_used, reason = "the helpers are test code too")]

use std::{
    env,
    fmt::Debug,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;
use differential::{
    answer::{self, Answer},
    case::{Case, NAMESPACE, Place, Verb},
    generate, kinds, rules,
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kapi::Server;
use kube::{
    Client, Config,
    api::{Api, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab::{ControlPlane, Extent, Kubernetes, progress::Terminal};
use proptest::{
    strategy::Strategy,
    test_runner::{Config as Runs, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Cases of each sort; about 20 ms each.
const CASES: u32 = 250;

/// Any number would do.
const SEED: u64 = 4;

struct Pair {
    runtime: Runtime,
    /// Ours and the real one.
    sides: [Side; 2],
    _server: Server,
    _plane: ControlPlane,
    number: AtomicU32,
}

struct Side {
    client: Client,
    owners: Vec<String>,
}

#[test]
fn every_rule_is_among_the_deviations() {
    let listed: Value = serde_json::from_str(include_str!(
        "../../../crates/kapi/tests/conformance/deviations.json"
    ))
    .unwrap();
    let listed = listed
        .as_object()
        .unwrap()
        .keys()
        .filter_map(|name| name.strip_prefix("random: "));
    let mut listed: Vec<&str> = listed.collect();
    let mut rules: Vec<&str> = rules::names().collect();
    listed.sort_unstable();
    rules.sort_unstable();
    assert_eq!(listed, rules);
}

#[test]
fn random_requests_are_answered_as_by_a_real_server() {
    let pair = Pair::start().unwrap();
    let seed = number("WINDLASS_DIFFERENTIAL_SEED").unwrap_or(SEED);
    let cases =
        number("WINDLASS_DIFFERENTIAL_CASES").map_or(CASES, |cases| cases.try_into().unwrap());
    eprintln!("{cases} cases of each sort, WINDLASS_DIFFERENTIAL_SEED={seed}");
    let rounds = Extent::of_this_run().seeds();
    let mut found = String::new();
    for seed in seed..seed + number("WINDLASS_DIFFERENTIAL_ROUNDS").unwrap_or(rounds) {
        found += &pair.hold("patches", &generate::patches(kinds::kinds()), seed, cases);
        found += &pair.hold("applies", &generate::applies(kinds::kinds()), seed, cases);
    }
    assert!(
        found.is_empty(),
        "WINDLASS_DIFFERENTIAL_SEED={seed}\n{found}"
    );
}

impl Pair {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kubeconfig is of a server of the test's own"
    )]
    fn start() -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plane = ControlPlane::start(Kubernetes::Newest, &Terminal::default())?;
        let runtime = Runtime::new()?;
        let definition = kinds::definition();
        let (server, sides) = runtime.block_on(async {
            let server = Server::in_memory(&[serde_json::from_value(definition.clone())?]).await?;
            let ours = Client::new(server.router(), "default");
            let kubeconfig = Kubeconfig::read_from(plane.kubeconfig())?;
            let options = KubeConfigOptions::default();
            let real =
                Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?;
            create::<CustomResourceDefinition>(&Api::all(real.clone()), definition).await?;
            anyhow::Ok((
                server,
                [Side::prepare(ours).await?, Side::prepare(real).await?],
            ))
        })?;
        plane.await_definitions()?;
        Ok(Self {
            runtime,
            sides,
            _server: server,
            _plane: plane,
            number: AtomicU32::new(0),
        })
    }

    /// Tries random cases. Gives what differs, in its smallest form.
    fn hold(
        &self,
        sort: &str,
        cases: &impl Strategy<Value = Case>,
        seed: u64,
        count: u32,
    ) -> String {
        let runs = Runs {
            cases: count,
            failure_persistence: None,
            max_shrink_iters: 4096,
            ..Runs::default()
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let generator = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(runs, generator);
        match runner.run(cases, |case| self.compare(&case)) {
            Ok(()) => String::new(),
            Err(TestError::Fail(why, case)) => format!("{sort}:\n{case}{why}\n"),
            Err(abort) => panicked(&abort),
        }
    }

    fn compare(&self, case: &Case) -> Result<(), TestCaseError> {
        let name = format!("case-{}", self.number.fetch_add(1, Ordering::Relaxed));
        let mut revisions = [String::new(), String::new()];
        for (at, step) in case.steps.iter().enumerate() {
            let mut answers = Vec::new();
            for (side, revision) in self.sides.iter().zip(&mut revisions) {
                let place = Place {
                    name: &name,
                    revision,
                    owners: &side.owners,
                };
                let request = step.request(&case.kind, &place).unwrap();
                let asked = answer::ask(&side.client, request, &place);
                let answer = self.runtime.block_on(asked);
                let answer = answer.unwrap_or_else(|why| Answer::broken_off(&why, &place));
                revision.clone_from(&answer.revision);
                answers.push(answer);
            }
            let [ours, real] = <[Answer; 2]>::try_from(answers).unwrap();
            assert!(!ours.is_broken_off(), "{}", ours.message);
            if ours.agrees(&real) {
                continue;
            }
            if rules::allowed(case, at, &ours, &real).is_none() {
                return Err(TestCaseError::fail(told(at, step.verb, &ours, &real)));
            }
            if ours.body != real.body {
                // From here on the two have different objects.
                break;
            }
        }
        Ok(())
    }
}

fn told(at: usize, verb: Verb, ours: &Answer, real: &Answer) -> String {
    let mut text = format!("request {at} ({verb:?})\n");
    for (who, answer) in [("ours", ours), ("real", real)] {
        text += &format!(
            "    {who} {} written={} {}\n",
            answer.code, answer.written, answer.message
        );
    }
    for line in answer::differences(&ours.body, &real.body) {
        text += &format!("    {line}\n");
    }
    text
}

impl Side {
    /// Makes what the cases need to be there.
    async fn prepare(client: Client) -> Result<Self> {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        create::<Namespace>(&Api::all(client.clone()), namespace).await?;
        let mut owners = Vec::new();
        for name in kinds::OWNERS {
            let api = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
            let owner = create(&api, json!({"metadata": {"name": name}})).await?;
            owners.push(owner.metadata.uid.unwrap_or_default());
        }
        Ok(Self { client, owners })
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    Ok(api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?)
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn panicked(why: &dyn Debug) -> String {
    format!("{why:?}\n")
}
