//! The whole comparison: install, start the servers, run every cell, write the page and the pictures.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cell::{self, Outcome};
use crate::install::Installed;
use crate::page::{self, Conditions, Results};
use crate::servers::Servers;
use crate::sizes::Sizes;
use crate::spread::shown;
use crate::systems::{SYSTEMS, Shape, Store, System};
use crate::{limits, plan, svg};

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    pub rounds: usize,
    pub sizes: Sizes,
    pub systems: Vec<&'static System>,
    pub shapes: Vec<Shape>,
    /// Where peers are installed and servers keep their data: on a disk.
    pub folder: PathBuf,
    /// The page and the folder of pictures, if they are to be written.
    pub write: Option<Pages>,
    /// How this program was built, for the page.
    pub build: String,
    /// The day, for the page.
    pub date: String,
}

#[derive(Debug, Clone)]
pub struct Pages {
    pub page: PathBuf,
    pub images: PathBuf,
}

/// Runs everything.
///
/// # Errors
///
/// When the servers do not start or the page cannot be written. A peer that fails is a row, not an error.
pub async fn run(options: &Options) -> anyhow::Result<Results> {
    let installed = Installed::for_systems(&options.systems, &options.folder).await?;
    let data = options.folder.join("data");
    std::fs::create_dir_all(&data).context("cannot make the folder for data")?;
    open_to_all(&data)?;
    let mut stores: Vec<Store> = options.systems.iter().map(|system| system.store).collect();
    stores.sort();
    stores.dedup();
    let mut servers = Servers::start(&stores, &data)?;
    let conditions = Conditions {
        date: options.date.clone(),
        machine: machine(),
        build: options.build.clone(),
        stores: servers.conditions().await?,
    };
    let sizes = serde_json::to_string(&options.sizes)?;
    let mut results = Results { rounds: options.rounds, ..Results::default() };
    for round in 0..options.rounds {
        for cell in plan::round(&options.systems, &options.shapes, round) {
            let outcome = measured(&mut servers, &installed, cell.system, cell.shape, &sizes).await?;
            println!("{}", said(round, cell.system, cell.shape, &outcome));
            results.add(cell.system, cell.shape, outcome);
        }
    }
    let text = page::write(&results, &options.sizes, &conditions);
    match &options.write {
        Some(pages) => write_pages(pages, &text, &results)?,
        None => println!("\n{text}"),
    }
    Ok(results)
}

async fn measured(
    servers: &mut Servers,
    installed: &Installed,
    system: &System,
    shape: Shape,
    sizes: &str,
) -> anyhow::Result<Outcome> {
    let command = match (system.shape(shape), installed.command(system.driver)) {
        (Ok(argument), Ok(command)) => (argument, command),
        (Err(reason), _) => return Ok(Err(reason.to_owned())),
        (_, Err(reason)) => return Ok(Err(format!("not installed: {reason}"))),
    };
    let fresh = servers.fresh(system.store).await?;
    let outcome = cell::run(command.1, command.0, &fresh.address, sizes, limits::CELL).await;
    servers.remove(fresh).await?;
    Ok(outcome)
}

fn said(round: usize, system: &System, shape: Shape, outcome: &Outcome) -> String {
    let figures = match outcome {
        Ok(answer) => {
            let names = answer.figures.keys();
            let said = names.filter_map(|name| Some(format!("{name} {}", shown(answer.figure(name)?))));
            said.collect::<Vec<_>>().join(", ")
        }
        Err(reason) => reason.clone(),
    };
    format!("{} {:<6} {:<22} {figures}", round + 1, shape.name(), system.id)
}

fn write_pages(pages: &Pages, text: &str, results: &Results) -> anyhow::Result<()> {
    let before = std::fs::read_to_string(&pages.page)
        .with_context(|| format!("cannot read {}", pages.page.display()))?;
    std::fs::write(&pages.page, page::put_into(&before, text)?).context("cannot write the page")?;
    for (name, chart) in page::charts(results) {
        std::fs::write(pages.images.join(&name), svg::draw(&chart))
            .with_context(|| format!("cannot write {name}"))?;
    }
    println!("wrote {} and its pictures", pages.page.display());
    Ok(())
}

/// PostgreSQL refuses to run as root, so another user has to get into the folder.
fn open_to_all(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, open).context("cannot open the folder for data to all users")
}

/// Processors and kernel, as the system tells them.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']).trim();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split(['-', '+']).next().unwrap_or_default().trim();
    format!("a machine with {cores} cores ({model}, Linux {kernel}), drivers and servers together on them")
}

/// The systems with these names, all if there is none.
///
/// # Errors
///
/// When a name is unknown.
pub fn systems(names: &[String]) -> anyhow::Result<Vec<&'static System>> {
    if names.is_empty() {
        return Ok(SYSTEMS.iter().collect());
    }
    let known: Vec<&str> = SYSTEMS.iter().map(|system| system.id).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("there is no system {unknown:?}; choose from {}", known.join(", "));
    }
    Ok(SYSTEMS.iter().filter(|system| names.iter().any(|name| name == system.id)).collect())
}

/// The shapes with these names, all if there is none.
///
/// # Errors
///
/// When a name is unknown.
pub fn shapes(names: &[String]) -> anyhow::Result<Vec<Shape>> {
    if let Some(unknown) = names.iter().find(|name| Shape::ALL.iter().all(|shape| shape.name() != *name)) {
        anyhow::bail!("there is no shape {unknown:?}; choose from jobs, keyed, burst");
    }
    let wanted = |shape: &Shape| names.is_empty() || names.iter().any(|name| name == shape.name());
    Ok(Shape::ALL.into_iter().filter(wanted).collect())
}
