//! A cloud with a RabbitMQ of its own: who makes a user in Keystone, is told of there.

use e2e::{Services, wait_until, windlass};
use lab::{CloudImages, progress::Terminal};
use serde_json::json;

use super::{LIMIT, names, nothing_secret_is_told_of, what_was_done_is_what_was_planned};

#[test]
fn a_keystone_tells_a_rabbitmq_what_people_do() {
    let terminal = Terminal::default();
    let world = Services::set(windlass().unwrap(), &terminal).unwrap();
    let image = CloudImages::rabbitmq(&terminal).unwrap();
    world.node.import(&image).unwrap();
    let mut cloud = Services::cloud("2026.2", &json!({}));
    cloud["spec"]["messaging"] = json!({"managed": {"image": CloudImages::RABBITMQ}});
    let services = cloud["spec"]["services"].as_array_mut().unwrap();
    // A pod of Placement has the `openstack` command.
    services.retain(|service| service["name"] != "glance");
    world.apply(&cloud).unwrap();
    world.until("openstack", "one", "Ready").unwrap();
    what_was_done_is_what_was_planned(&world, &cloud);

    // There is no queue before the first message: Keystone makes it.
    let told = || {
        let list = "PATH=/opt/rabbitmq/sbin:/usr/lib/rabbitmq/bin:$PATH exec rabbitmqctl --quiet list_queues name messages";
        let list = ["exec", "one-rabbitmq-0", "--", "sh", "-c", list];
        let queues = world.kubectl(&list)?;
        let mut queues = queues.lines().filter_map(|line| {
            let (name, messages) = line.split_once('\t')?;
            (name == "notifications.info").then(|| messages.trim().parse::<u32>())
        });
        anyhow::Ok(queues.next().transpose()?.unwrap_or_default())
    };
    let before = told().unwrap();
    world.openstack(&["user", "create", "ann"]).unwrap();
    wait_until("Keystone to tell of a user", LIMIT, || {
        Ok((told()? > before).then_some(()))
    })
    .unwrap();
    nothing_secret_is_told_of(
        &world,
        &[
            ("one-rabbitmq-admin", "password"),
            ("one-keystone-database", "password"),
        ],
    );

    // A server that comes back knows its user again, and Keystone finds it.
    world
        .kubectl(&["delete", "pod", "one-rabbitmq-0", "--wait"])
        .unwrap();
    wait_until(
        "RabbitMQ to be back, and told of another user",
        LIMIT,
        || {
            let create = ["user", "create", "--or-show", "ben"];
            world.openstack(&create)?;
            world.openstack(&["user", "delete", "ben"])?;
            Ok(told().is_ok_and(|told| told > 0).then_some(()))
        },
    )
    .unwrap();

    let delete = ["delete", "openstack", "one", "--timeout=300s"];
    world.kubectl(&delete).unwrap();
    assert_eq!(names(&world, "statefulsets"), "");
}
