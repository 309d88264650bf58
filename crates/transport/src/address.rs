//! The address of a server where none is given.

use isonomia_units::address::UNIX_PATH_LEN_MAX;
pub use isonomia_units::{Address, Addresses, BadAddress};

/// The address used when nothing else is said: a socket in a directory that only `uid` can write to. Of root that is
/// `/run/isonomia`; of others `isonomia` in `runtime_dir`, which is what `XDG_RUNTIME_DIR` says, else in
/// `/run/user/UID` if there is one, else `/tmp/isonomia-UID`, which the server makes and checks.
pub fn default_address(uid: u32, runtime_dir: Option<&str>) -> Address {
    let system = || Some(format!("/run/user/{uid}")).filter(|dir| rustix::fs::stat(dir.as_str()).is_ok());
    let fits = |dir: &&str| dir.starts_with('/') && dir.len() + "/isonomia/socket".len() <= UNIX_PATH_LEN_MAX;
    let dir = match runtime_dir.filter(fits).map(str::to_owned).or_else(system) {
        _ if uid == 0 => "/run/isonomia".to_owned(),
        Some(dir) => format!("{dir}/isonomia"),
        None => format!("/tmp/isonomia-{uid}"),
    };
    Address::Unix(format!("{dir}/socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_in_a_directory_of_the_users_own() {
        // No system has a user of this number.
        const NOBODY: u32 = 4_294_000_007;
        let of = |uid, runtime_dir| default_address(uid, runtime_dir).to_string();
        assert_eq!(of(NOBODY, Some("/run/user/7")), "unix:/run/user/7/isonomia/socket");
        let long = "/x".repeat(60);
        for none in [None, Some(""), Some("here"), Some(long.as_str())] {
            assert_eq!(of(NOBODY, none), format!("unix:/tmp/isonomia-{NOBODY}/socket"));
        }
        assert_eq!(of(0, Some("/run/user/0")), "unix:/run/isonomia/socket");
    }
}
