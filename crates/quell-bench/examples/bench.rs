//! Runs the workloads without the command line around them: `cargo run --release -p quell-bench --example bench`, with
//! `--store URL` for a server, and names of workloads.

use std::future::pending;

use quell_bench::{Options, Place, Program, Sizes};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["worker"] {
        return quell_bench::work().await;
    }
    let place = match arguments.iter().position(|argument| argument == "--store") {
        Some(at) if at + 1 < arguments.len() => {
            let url = arguments.remove(at + 1);
            arguments.remove(at);
            Place::of(&url)?
        }
        _ => Place::Folder(std::env::current_dir()?),
    };
    let worker = Some(Program { path: std::env::current_exe()?, args: vec!["worker".to_owned()] });
    let options = Options { place, workloads: arguments, sizes: Sizes::default(), worker, server: None };
    for f in quell_bench::run(&options, pending(), |what| eprintln!("{what}")).await?.figures {
        let ratio = f.ratio.map(|r| format!("{r:.3} × raw {:.0}", f.raw.unwrap_or(0.0))).unwrap_or_default();
        println!("{:<9} {:<50} {:>12.2} {:<9} {ratio} {:?}", f.workload, f.what, f.value, f.unit, f.reached);
    }
    Ok(())
}
