use super::*;

#[test]
fn an_address_in_place_of_its_file_is_not_told() {
    let refused = of_file(Path::new("mysql+pymysql://magnum:s3cret@localhost/magnum"));
    let told = format!("{:#}", refused.unwrap_err());
    assert!(
        told.contains("--database") && !told.contains("s3cret"),
        "{told}"
    );
    let told = format!("{:#}", of_file(Path::new("/no/such")).unwrap_err());
    assert!(told.contains("/no/such"), "{told}");
    // One that never ends.
    let told = format!("{:#}", of_file(Path::new("/dev/zero")).unwrap_err());
    assert!(told.contains("no address of a database"), "{told}");
}
