//! Runs the workloads without the command line around them: `cargo run --release -p quell-bench --example bench`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options =
        quell_bench::Options { folder: std::env::current_dir()?, jobs: 100_000, workloads: arguments };
    for f in quell_bench::run(&options, |what| eprintln!("{what}")).await? {
        let ratio = f.ratio.map(|r| format!("{r:.3} × raw {:.0}", f.raw.unwrap_or(0.0))).unwrap_or_default();
        println!("{:<6} {:<42} {:>12.2} {:<9} {ratio} {:?}", f.workload, f.what, f.value, f.unit, f.reached);
    }
    Ok(())
}
