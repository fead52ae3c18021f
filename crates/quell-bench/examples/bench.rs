//! Runs the workloads without the command line around them: `cargo run --release -p quell-bench --example bench`, with
//! `--store URL` for a server, `--plot FOLDER` and `--write-costs FILE` as `quell bench` has them, and names of workloads.

use std::future::pending;
use std::path::Path;

use quell_bench::{Options, Place, Program, Sizes};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["worker"] {
        return quell_bench::work().await;
    }
    let place = match flag(&mut arguments, "--store") {
        Some(url) => Place::of(&url)?,
        None => Place::Folder(std::env::current_dir()?),
    };
    let (pictures, costs) = (flag(&mut arguments, "--plot"), flag(&mut arguments, "--write-costs"));
    let worker = Some(Program { path: std::env::current_exe()?, args: vec!["worker".to_owned()] });
    let options = Options { place, workloads: arguments, sizes: Sizes::default(), worker, server: None };
    let measured = quell_bench::run(&options, pending(), |what| eprintln!("{what}")).await?;
    for f in &measured.figures {
        let ratio = f.ratio.map(|r| format!("{r:.3} × raw {:.0}", f.raw.unwrap_or(0.0))).unwrap_or_default();
        println!("{:<9} {:<50} {:>12.2} {:<9} {ratio} {:?}", f.workload, f.what, f.value, f.unit, f.reached);
    }
    if let Some(folder) = pictures {
        quell_bench::write_curves(Path::new(&folder), &measured)?;
    }
    if let Some(file) = costs {
        quell_bench::costs::write(Path::new(&file), &measured)?;
    }
    Ok(())
}

/// What follows this flag, which is taken out.
fn flag(arguments: &mut Vec<String>, name: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == name).filter(|at| at + 1 < arguments.len())?;
    arguments.remove(at);
    Some(arguments.remove(at))
}
