//! Sets the one thing in which this build differs: the deliberate bugs of `quell-core/src/mutants.rs` can be chosen.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=quell_mutants");
}
