//! The functions that rules may call, as Kubernetes 1.33 declares them for new rules.
//!
//! What the crates have beside (`math`, `base64`, later lists) is refused as a real server refuses it; what a real server has and
//! the crates do not (comprehensions over two variables, `optMap`, time zones) is refused too, and named in
//! `docs/reference/embedded-api.md`.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use super::types::Type;

/// One form of a function: the types of its arguments, the receiver first, and of its result.
#[derive(Debug)]
pub(super) struct Form {
    pub method: bool,
    pub takes: Vec<Type>,
    pub gives: Type,
}

/// The forms of a function.
pub(super) fn forms(name: &str) -> &'static [Form] {
    FORMS.get(name).map_or(&[], Vec::as_slice)
}

static FORMS: LazyLock<HashMap<&'static str, Vec<Form>>> = LazyLock::new(|| {
    let mut forms: HashMap<_, Vec<Form>> = HashMap::new();
    for line in DECLARATIONS
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (call, gives) = line.split_once(" -> ").unwrap_or((line, "dyn"));
        let (takes, name) = call.split_once('|').unwrap_or(("", call));
        let method = !takes.is_empty();
        let (name, arguments) = name.split_once('(').unwrap_or((name, ")"));
        let arguments = arguments.trim_end_matches(')').split_whitespace();
        let takes = takes.split_whitespace().chain(arguments).map(named);
        forms.entry(name).or_default().push(Form {
            method,
            takes: takes.collect(),
            gives: named(gives),
        });
    }
    forms
});

fn named(name: &str) -> Type {
    if let Some(item) = name.strip_suffix("[]") {
        return Type::list(named(item), 0);
    }
    if let Some(inner) = name.strip_suffix('?') {
        return Type::Optional(Arc::new(named(inner)));
    }
    match name {
        "dyn" => Type::dynamic(),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String(0),
        "bytes" => Type::Bytes(0),
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "type" => Type::Type,
        "map" => Type::Map(Arc::new(Type::Any('K')), Arc::new(Type::Any('V')), 0),
        "IP" => Type::Opaque("net.IP"),
        "CIDR" => Type::Opaque("net.CIDR"),
        "URL" => Type::Opaque("kubernetes.URL"),
        "Quantity" => Type::Opaque("kubernetes.Quantity"),
        "Format" => Type::Opaque("kubernetes.NamedFormat"),
        "Semver" => Type::Opaque("kubernetes.Semver"),
        other => Type::Any(other.chars().next().unwrap_or('T')),
    }
}

/// `receiver|name(arguments) -> result`. `T[]` is a list, `T?` an optional; `C` has an order, `S` a sum, `N` an order that goes
/// over all numbers.
const DECLARATIONS: &str = "
    !_(bool) -> bool
    -_(int) -> int
    -_(double) -> double
    _==_(T T) -> bool
    _!=_(T T) -> bool
    _<_(N N) -> bool
    _<=_(N N) -> bool
    _>_(N N) -> bool
    _>=_(N N) -> bool
    _+_(int int) -> int
    _+_(uint uint) -> uint
    _+_(double double) -> double
    _+_(string string) -> string
    _+_(bytes bytes) -> bytes
    _+_(T[] T[]) -> T[]
    _+_(timestamp duration) -> timestamp
    _+_(duration timestamp) -> timestamp
    _+_(duration duration) -> duration
    _-_(int int) -> int
    _-_(uint uint) -> uint
    _-_(double double) -> double
    _-_(timestamp timestamp) -> duration
    _-_(timestamp duration) -> timestamp
    _-_(duration duration) -> duration
    _*_(int int) -> int
    _*_(uint uint) -> uint
    _*_(double double) -> double
    _/_(int int) -> int
    _/_(uint uint) -> uint
    _/_(double double) -> double
    _%_(int int) -> int
    _%_(uint uint) -> uint
    @in(T T[]) -> bool
    @in(K map) -> bool
    size(string) -> int
    size(bytes) -> int
    size(T[]) -> int
    size(map) -> int
    string|size() -> int
    bytes|size() -> int
    T[]|size() -> int
    map|size() -> int
    dyn(T) -> dyn
    type(T) -> type
    bool(bool) -> bool
    bool(string) -> bool
    int(int) -> int
    int(uint) -> int
    int(double) -> int
    int(string) -> int
    int(timestamp) -> int
    uint(uint) -> uint
    uint(int) -> uint
    uint(double) -> uint
    uint(string) -> uint
    double(double) -> double
    double(int) -> double
    double(uint) -> double
    double(string) -> double
    string(string) -> string
    string(bool) -> string
    string(int) -> string
    string(uint) -> string
    string(double) -> string
    string(bytes) -> string
    string(timestamp) -> string
    string(duration) -> string
    string(IP) -> string
    string(CIDR) -> string
    bytes(string) -> bytes
    bytes(bytes) -> bytes
    timestamp(string) -> timestamp
    timestamp(timestamp) -> timestamp
    duration(string) -> duration
    duration(duration) -> duration
    timestamp|getFullYear() -> int
    timestamp|getMonth() -> int
    timestamp|getDayOfYear() -> int
    timestamp|getDayOfMonth() -> int
    timestamp|getDate() -> int
    timestamp|getDayOfWeek() -> int
    timestamp|getHours() -> int
    timestamp|getMinutes() -> int
    timestamp|getSeconds() -> int
    timestamp|getMilliseconds() -> int
    duration|getHours() -> int
    duration|getMinutes() -> int
    duration|getSeconds() -> int
    duration|getMilliseconds() -> int
    string|contains(string) -> bool
    string|startsWith(string) -> bool
    string|endsWith(string) -> bool
    string|matches(string) -> bool
    matches(string string) -> bool
    string|find(string) -> string
    string|findAll(string) -> string[]
    string|findAll(string int) -> string[]
    string|charAt(int) -> string
    string|indexOf(string) -> int
    string|indexOf(string int) -> int
    string|lastIndexOf(string) -> int
    string|lastIndexOf(string int) -> int
    string|lowerAscii() -> string
    string|upperAscii() -> string
    string|replace(string string) -> string
    string|replace(string string int) -> string
    string|split(string) -> string[]
    string|split(string int) -> string[]
    string|substring(int) -> string
    string|substring(int int) -> string
    string|trim() -> string
    string|format(dyn[]) -> string
    string[]|join() -> string
    string[]|join(string) -> string
    strings.quote(string) -> string
    C[]|isSorted() -> bool
    S[]|sum() -> S
    C[]|min() -> C
    C[]|max() -> C
    T[]|indexOf(T) -> int
    T[]|lastIndexOf(T) -> int
    sets.contains(T[] T[]) -> bool
    sets.equivalent(T[] T[]) -> bool
    sets.intersects(T[] T[]) -> bool
    optional.none() -> T?
    optional.of(T) -> T?
    optional.ofNonZeroValue(T) -> T?
    T?|hasValue() -> bool
    T?|value() -> T
    T?|or(T?) -> T?
    T?|orValue(T) -> T
    isURL(string) -> bool
    url(string) -> URL
    URL|getScheme() -> string
    URL|getHost() -> string
    URL|getHostname() -> string
    URL|getPort() -> string
    URL|getEscapedPath() -> string
    URL|getQuery() -> map
    isQuantity(string) -> bool
    quantity(string) -> Quantity
    Quantity|isInteger() -> bool
    Quantity|asInteger() -> int
    Quantity|asApproximateFloat() -> double
    Quantity|sign() -> int
    Quantity|isGreaterThan(Quantity) -> bool
    Quantity|isLessThan(Quantity) -> bool
    Quantity|compareTo(Quantity) -> int
    Quantity|add(Quantity) -> Quantity
    Quantity|add(int) -> Quantity
    Quantity|sub(Quantity) -> Quantity
    Quantity|sub(int) -> Quantity
    isIP(string) -> bool
    ip(string) -> IP
    ip.isCanonical(string) -> bool
    IP|family() -> int
    IP|isUnspecified() -> bool
    IP|isLoopback() -> bool
    IP|isLinkLocalMulticast() -> bool
    IP|isLinkLocalUnicast() -> bool
    IP|isGlobalUnicast() -> bool
    isCIDR(string) -> bool
    cidr(string) -> CIDR
    CIDR|containsIP(string) -> bool
    CIDR|containsIP(IP) -> bool
    CIDR|containsCIDR(string) -> bool
    CIDR|containsCIDR(CIDR) -> bool
    CIDR|ip() -> IP
    CIDR|masked() -> CIDR
    CIDR|prefixLength() -> int
    format.named(string) -> Format?
    format.dns1123Label() -> Format
    format.dns1123Subdomain() -> Format
    format.dns1035Label() -> Format
    format.qualifiedName() -> Format
    format.dns1123LabelPrefix() -> Format
    format.dns1123SubdomainPrefix() -> Format
    format.dns1035LabelPrefix() -> Format
    format.labelValue() -> Format
    format.uri() -> Format
    format.uuid() -> Format
    format.byte() -> Format
    format.date() -> Format
    format.datetime() -> Format
    Format|validate(string) -> string[]?
    isSemver(string) -> bool
    semver(string) -> Semver
    Semver|major() -> int
    Semver|minor() -> int
    Semver|patch() -> int
    Semver|isGreaterThan(Semver) -> bool
    Semver|isLessThan(Semver) -> bool
    Semver|compareTo(Semver) -> int
";
