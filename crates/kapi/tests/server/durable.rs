//! The data directory: what was acknowledged is there after any end of the process, and nothing is overwritten.

use std::{collections::HashSet, fs, os::unix::fs::PermissionsExt};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kapi::Server;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;

use crate::client::{closed, killed, open, reopen, rewrite, tell, to_be_killed};

fn maps(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(Client::new(server.router(), "default"), "default")
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// Of the ConfigMaps that there are.
async fn names(server: &Server) -> Vec<String> {
    let list = maps(server).list(&ListParams::default()).await.unwrap();
    let names = list.items.into_iter().map(|map| map.metadata.name);
    names.map(Option::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_and_watches_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let revision = {
        let server = open(directory.path()).await.unwrap();
        let maps = maps(&server);
        maps.create(&PostParams::default(), &map("one"))
            .await
            .unwrap();
        let list = maps.list(&ListParams::default()).await.unwrap();
        maps.create(&PostParams::default(), &map("two"))
            .await
            .unwrap();
        maps.delete("one", &DeleteParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap()
    };
    let server = reopen(directory.path()).await.unwrap();
    assert_eq!(names(&server).await, ["two"]);
    let parameters = WatchParams::default().timeout(1);
    let events: Vec<_> = maps(&server)
        .watch(&parameters, &revision)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert!(
        matches!(
            events.as_slice(),
            [WatchEvent::Added(_), WatchEvent::Deleted(_)]
        ),
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_sealed_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = open(directory.path()).await.unwrap();
        let secrets: Api<Secret> =
            Api::namespaced(Client::new(server.router(), "default"), "default");
        let secret: Secret = serde_json::from_value(
            json!({"metadata": {"name": "s"}, "stringData": {"k": "correct horse battery"}}),
        )
        .unwrap();
        secrets
            .create(&PostParams::default(), &secret)
            .await
            .unwrap();
        for file in ["state.db", "state.db-wal"] {
            let bytes = fs::read(directory.path().join(file)).unwrap_or_default();
            let clear = b"Y29ycmVjdCBob3JzZSBiYXR0ZXJ5";
            assert!(
                !bytes.windows(clear.len()).any(|window| window == clear),
                "{file}"
            );
        }
    }
    let mode = fs::metadata(directory.path().join("secrets.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let server = reopen(directory.path()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(Client::new(server.router(), "default"), "default");
    assert_eq!(
        secrets.get("s").await.unwrap().data.unwrap()["k"].0,
        b"correct horse battery"
    );
    drop(secrets);
    drop(server);
    fs::remove_file(directory.path().join("secrets.key")).unwrap();
    let error = reopen(directory.path()).await.unwrap_err().to_string();
    assert!(error.contains("secrets.key"), "{error}");
}

/// Until format 2 objects were stored as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_an_older_windlass_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let before = {
        let server = open(directory.path()).await.unwrap();
        let maps = maps(&server);
        for name in ["one", "two"] {
            maps.create(&PostParams::default(), &map(name))
                .await
                .unwrap();
        }
        maps.list(&ListParams::default()).await.unwrap()
    };
    drop(reopen(directory.path()).await.unwrap());
    closed(directory.path()).await;
    rewrite(directory.path(), "configmaps", |json| {
        assert!(json.starts_with(r#"{"apiVersion":"v1","kind":"ConfigMap""#));
        json
    });
    let server = open(directory.path()).await.unwrap();
    let after = maps(&server).list(&ListParams::default()).await.unwrap();
    assert_eq!(after.items, before.items);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path()).await.unwrap();
    let error = open(directory.path()).await.unwrap_err().to_string();
    let expected = format!(
        "another windlass (pid {}) uses this directory: stop it or choose another --data-dir",
        std::process::id()
    );
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_database_is_named_and_left_alone() {
    for damage in [0, 1000, 2048, 4096, 6000] {
        let directory = tempfile::tempdir().unwrap();
        {
            let server = open(directory.path()).await.unwrap();
            let maps = maps(&server);
            for index in 0..50 {
                maps.create(&PostParams::default(), &map(&format!("m{index}")))
                    .await
                    .unwrap();
            }
        }
        drop(reopen(directory.path()).await.unwrap());
        let file = directory.path().join("state.db");
        // Both are written back when the last connection closes.
        closed(directory.path()).await;
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(damage)
            .unwrap();
        let before = fs::read(&file).unwrap();
        let error = open(directory.path()).await.unwrap_err().to_string();
        assert!(
            error.contains("state.db") && error.contains("backup"),
            "{damage}: {error}"
        );
        assert_eq!(
            fs::read(&file).unwrap(),
            before,
            "{damage}: the file was changed"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_windlass_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).await.unwrap());
    drop(reopen(directory.path()).await.unwrap());
    let database = rusqlite::Connection::open(directory.path().join("state.db")).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let error = open(directory.path()).await.unwrap_err().to_string();
    assert!(error.contains("its format is 99"), "{error}");
}

/// Kills a writing process at any moment, five times over, and counts: what it was told is stored, is stored.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = killed("durable::writer_process", directory.path(), 5, |round| {
        61 + round * 37
    })
    .concat();
    assert!(acknowledged.len() > 300, "{}", acknowledged.len());
    let server = open(directory.path()).await.unwrap();
    let stored: HashSet<String> = names(&server).await.into_iter().collect();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|name| !stored.contains(*name))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

/// Not a test of its own: the process that is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by nothing_acknowledged_is_lost_by_a_kill"]
async fn writer_process() {
    let Some((directory, round)) = to_be_killed() else {
        return;
    };
    let server = open(&directory).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let maps = maps(&server);
        let round = round.clone();
        writers.spawn(async move {
            for index in 0..100_000 {
                let name = format!("r{round}-w{writer}-{index}");
                maps.create(&PostParams::default(), &map(&name))
                    .await
                    .unwrap();
                tell(&name);
            }
        });
    }
    writers.join_all().await;
}
