//! What people write on the objects of a cluster.

use std::{collections::BTreeSet, sync::Arc};

use api::{ClusterNode, HostName, node::Role};
use jiff::SignedDuration;
use kube::ResourceExt;
use kubespray::{
    certificates::Part as Served,
    operation::{
        asked,
        toolbox::{Part, Request, Verb},
    },
    request,
};
use serde_json::json;

use super::{Kind, NOON, World};

impl World {
    pub fn declare(&mut self, kind: Kind) {
        self.made += 1;
        let at = self.made;
        let (node_type, roles) = kind.spec();
        let node = json!({
            "apiVersion": "kubespray.k8s.io/v1", "kind": "ClusterNode",
            "metadata": {
                "name": format!("host-{at:02}"), "namespace": "demo", "uid": at.to_string(), "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", at / 60, at % 60),
            },
            "spec": {
                "type": node_type, "roles": roles, "inventory": {"ansible_host": format!("10.0.0.{at}")},
            },
        });
        self.observed
            .nodes
            .push(serde_json::from_value(node).unwrap());
    }

    /// One of the declared hosts.
    pub fn node(&mut self, at: usize) -> Option<&mut ClusterNode> {
        let many = self.observed.nodes.len();
        self.observed.nodes.get_mut(at.checked_rem(many)?)
    }

    pub fn delete(&mut self, at: usize) {
        let now = serde_json::from_value(json!(NOON)).unwrap();
        if let Some(node) = self.node(at) {
            node.metadata.deletion_timestamp.get_or_insert(now);
        }
        self.let_go();
    }

    /// The Cluster is deleted, and its hosts are to be reset by it or left alone.
    pub fn end(&mut self, policy: &str) {
        self.spec(&json!({"deletionPolicy": policy}));
        let now = serde_json::from_value(json!(NOON)).unwrap();
        let metadata = &mut self.cluster.metadata;
        metadata.deletion_timestamp.get_or_insert(now);
    }

    /// As `windlass node replace`: by a new host of the same roles, or by one that there is.
    pub fn replace(&mut self, at: usize, by: Option<usize>) {
        let Some(roles) = self.node(at).map(|node| node.spec.roles.clone()) else {
            return;
        };
        let by = if let Some(other) = by {
            self.node(other).map(|node| node.name_any())
        } else {
            self.declare(Kind::Worker);
            let new = self.observed.nodes.last_mut().unwrap();
            new.spec.roles = roles;
            Some(new.name_any())
        };
        if let (Some(node), Some(by)) = (self.node(at), by) {
            let named = (request::REPLACED_BY.to_owned(), by);
            node.annotations_mut().extend([named]);
        }
        self.delete(at);
    }

    /// As `windlass node reset`.
    pub fn reset(&mut self, at: usize) {
        self.made += 1;
        let number = self.made;
        if let Some(node) = self.node(at) {
            let asked = format!("{} {number}", node.name_any());
            let asked = (request::RESET_HOST.to_owned(), asked);
            node.annotations_mut().extend([asked]);
        }
    }

    /// The operator sees who is switched off, and says it of their nodes.
    pub fn see(&mut self) {
        let dead = self.dead.clone();
        for node in &mut self.observed.nodes {
            let health = if dead.contains(&node.name_any()) {
                "HEALTH_ERR"
            } else {
                "HEALTH_OK"
            };
            let status = json!({"state": "Joined", "node": {"health": health}});
            node.status = Some(serde_json::from_value(status).unwrap());
        }
    }

    /// As `windlass node keep`: the object is made anew, and the node takes pods again.
    pub fn keep(&mut self, at: usize) {
        self.made += 1;
        let uid = format!("again-{}", self.made);
        let Some(node) = self.node(at) else { return };
        if node.metadata.deletion_timestamp.take().is_some() {
            node.metadata.uid = Some(uid);
            node.annotations_mut().remove(request::REPLACED_BY);
            let name = node.name_any();
            self.reality.drained.remove(&name);
        }
    }

    pub fn annotate(&mut self, annotation: &str) {
        self.made += 1;
        let value = self.made.to_string();
        let annotations = self.cluster.annotations_mut();
        annotations.insert(annotation.to_owned(), value);
    }

    /// An operation is asked for, as the commands of Windlass do; `how` chooses among what may be said of it.
    pub fn ask(&mut self, which: usize, how: usize) {
        self.made += 1;
        let all: Vec<_> = asked::all().collect();
        let asked = all[which % all.len()];
        let value = self.sample(asked.operation.name, how);
        let annotations = self.cluster.annotations_mut();
        annotations.insert(asked.annotation.to_owned(), value);
    }

    /// A request.
    ///
    /// # Panics
    ///
    /// The operation is not known here.
    fn sample(&self, operation: &str, how: usize) -> String {
        let mark = self.made.to_string();
        match operation {
            "Converge" | "Renew" | "Snapshot" => mark,
            "Component" => {
                let components = ["container-engine", "etcd", "network-plugin"];
                format!("{} {mark}", components[how % components.len()])
            }
            "Drill" => format!("2026-05-31T03-30-00Z {mark}"),
            "Recover" if how.is_multiple_of(5) => self.rolling_back(),
            "Recover" => self.giving_up(how / 10, how.is_multiple_of(2)),
            "Toolbox" => self.tending(how).text(&mark),
            other => panic!(
                "nobody knows here how people ask for {other}: say in `sample` what its annotation may hold"
            ),
        }
    }

    /// Something of the toolbox.
    fn tending(&self, how: usize) -> Request {
        let mut verbs = vec![
            Verb::Cordon,
            Verb::Uncordon,
            Verb::Drain { forced: false },
            Verb::Drain { forced: true },
            Verb::Token {
                expires: api::Duration::from_seconds(3600),
            },
            Verb::Certificates,
        ];
        verbs.extend(Part::ALL.map(Verb::Restart));
        let verb = verbs[how % verbs.len()];
        let hosts = match verb {
            Verb::Token { .. } => BTreeSet::new(),
            Verb::Restart(Part::Etcd) => self.reality.with(Role::Etcd),
            Verb::Restart(Part::ApiServer | Part::ControllerManager | Part::Scheduler) => {
                self.reality.with(Role::ControlPlane)
            }
            _ => self.reality.hosts.keys().cloned().collect(),
        };
        // One of them, or several.
        let (first, many) = (how / verbs.len(), 1 + how % 3);
        let hosts = hosts.iter().cycle().skip(first).take(many.min(hosts.len()));
        Request {
            verb,
            hosts: hosts
                .map(|host| host.parse::<HostName>().unwrap())
                .collect(),
        }
    }

    /// As `windlass recover`: all members of etcd but one are given up.
    pub fn recover(&mut self, stays: usize, snapshot: bool) {
        self.made += 1;
        let request = self.giving_up(stays, snapshot);
        let annotations = self.cluster.annotations_mut();
        annotations.insert(request::RECOVER.to_owned(), request);
    }

    /// As `windlass recover --roll-back`.
    pub fn roll_back(&mut self) {
        self.made += 1;
        let request = self.rolling_back();
        let annotations = self.cluster.annotations_mut();
        annotations.insert(request::RECOVER.to_owned(), request);
    }

    fn rolling_back(&self) -> String {
        let (mark, snapshot) = (self.made.to_string(), "/var/backups/snapshot.db");
        json!({"at": mark, "confirm": "first", "rollBack": true, "snapshot": snapshot}).to_string()
    }

    fn giving_up(&self, stays: usize, snapshot: bool) -> String {
        let members = self.reality.order.get("etcd").cloned().unwrap_or_default();
        let stays = stays
            .checked_rem(members.len())
            .and_then(|at| members.get(at));
        let give_up: Vec<_> = members.iter().filter(|name| Some(*name) != stays).collect();
        let mut request =
            json!({"at": self.made.to_string(), "confirm": "first", "giveUp": give_up});
        if snapshot {
            request["snapshot"] = json!("/var/backups/snapshot.db");
        }
        request.to_string()
    }

    /// Whether the request to recover gives a host up.
    pub fn gives_up(&self, host: &str) -> bool {
        let annotations = self.cluster.annotations();
        let request = annotations.get(request::RECOVER);
        request.is_some_and(|request| request.contains(&format!("\"{host}\"")))
    }

    /// The servers of the control planes show certificates that end in so many days; what ends within thirty is to be renewed.
    pub fn certificates(&mut self, days: i64) {
        self.spec(&json!({"nodes": {"all": {"certificates": {"renew": "30d"}}}}));
        let end = self.observed.now + SignedDuration::from_hours(24 * days);
        let planes = self.reality.with(Role::ControlPlane).into_iter();
        let ends = planes.map(|plane| ((plane, Served::ApiServer), end));
        self.observed.served = Arc::new(kubespray::certificates::Served {
            at: Some(self.observed.now),
            ends: ends.collect(),
        });
    }
}
