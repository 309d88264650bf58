# Finds a Rust that can build this repository. Sourced, by sh; everything here begins with `rust_`.
#
# The pinned toolchain (rust-toolchain.toml) is taken if rustup has it; otherwise any cargo that is new enough, be it
# another toolchain of rustup's or Debian's: it is better to build with a newer compiler than not at all.

rust_pinned=$(sed -n 's/^channel *= *"\(.*\)"$/\1/p' rust-toolchain.toml)

# Whether version $1 is at least $2.
rust_at_least() {
    [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

# Whether `cargo` in the present environment is new enough and has rustfmt and clippy beside it.
rust_is_usable() {
    rust_version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
    [ -n "$rust_version" ] && rust_at_least "$rust_version" "$rust_pinned" &&
        cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
}

# Sets the environment up so that `cargo` is usable; fails if there is no such cargo.
rust_find() {
    [ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    export PATH
    rust_is_usable && return 0
    if command -v rustup >/dev/null; then
        for rust_toolchain in $(rustup toolchain list 2>/dev/null | cut -d ' ' -f 1 | grep -v nightly); do
            RUSTUP_TOOLCHAIN=$rust_toolchain
            export RUSTUP_TOOLCHAIN
            rust_is_usable && return 0
        done
        unset RUSTUP_TOOLCHAIN
    fi
    # Debian's cargo, past a rustup that has no toolchain for us.
    PATH="/usr/bin:$PATH"
    rust_is_usable
}

# The other of the two kinds of machines that the preload library has instructions for.
rust_other_target() {
    case "$(uname -m)" in
    x86_64) echo aarch64-unknown-linux-gnu ;;
    *) echo x86_64-unknown-linux-gnu ;;
    esac
}

# Prints the same if the toolchain in use can compile for it, and nothing otherwise.
rust_other_machine() {
    rust_target=$(rust_other_target)
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$rust_target" ] || echo "$rust_target"
}
