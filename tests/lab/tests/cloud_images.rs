//! The images of OpenStack's services are made and named as pods name them.

use std::process::Command;

use lab::{CloudImages, command::output, progress::Terminal};

#[test]
fn images_are_named_as_pods_name_them() {
    let images = CloudImages::ensure(&Terminal::default()).unwrap();
    for (file, name) in images
        .files()
        .iter()
        .zip([CloudImages::MARIADB, CloudImages::SERVICES])
    {
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--to-stdout").arg("--file");
        let index = output(tar.arg(file).arg("index.json")).unwrap();
        assert!(index.contains(name), "{index}");
    }
}
