//! Options of `isonomia reproduce`.

use clap::Args;
use isonomia_reproduce::{PAPERS, Paper};
use std::path::PathBuf;

/// Compute the claims of a published paper anew
///
/// For each figure and table: the data (CSV and JSON), as soon as it is finished; and a report, claims.md, with the
/// paper's value, ours with a confidence interval over seeds, and whether the claim reproduces, by a rule that is printed
/// in the end. `python3 -m isonomia.figures DIR` draws the data. Papers: ics20, gift, themisio, tapp-io, laboratory (no paper: the simulators against closed forms), or all of
/// them. Ctrl-C keeps what is finished, and the same program goes on from there; with `all` there is a summary.md with
/// what each part cost.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  isonomia reproduce all
  isonomia reproduce ics20
  isonomia reproduce ics20 --quick --out /tmp/ics20
  isonomia reproduce ics20 fig15 --out /tmp/fig15
  isonomia reproduce gift simulated --out /tmp/gift
  isonomia reproduce gift fair-finish --quick
  isonomia reproduce tapp-io --quick")]
pub struct ReproduceOptions {
    /// The paper, or `all`
    #[arg(value_name = "PAPER", value_parser = papers)]
    pub papers: Papers,
    /// One study, or one item of it; for ics20: table1 (fig5 to fig8, jitter), packs (fig10 to fig15), sensitivity;
    /// for gift: example (fig6), real (fig7 to fig9), simulated (fig10), parameters (fig11, fig12), conditions (fig13,
    /// fig14), cost (overhead, messages, silence), beyond (sources, coflow), finish (fair-finish), saturated (saturation), nodes-for-all (closed), choice (guarantee), live (requests); for themisio: scaling (fig7), sharing (fig8
    /// to fig10), peers (fig12), applications (fig13, writers, pause), delay (fig14); for tapp-io: file-per-process (fig4 to fig7),
    /// shared-file (fig8), checkpoint (fig9), open (sensitivity); for laboratory: validation [default: all]
    #[arg(value_name = "ITEM")]
    pub item: Option<String>,
    /// Fewer points and seeds, for a first look
    #[arg(long)]
    pub quick: bool,
    /// Directory for data and the report; with `all` one in it for each paper [default: out/reproduce/PAPER]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Which papers.
#[derive(Clone, Copy, Debug)]
pub enum Papers {
    /// Every one.
    All,
    /// One.
    One(&'static Paper),
}

fn papers(name: &str) -> Result<Papers, String> {
    if name == "all" {
        return Ok(Papers::All);
    }
    let found = PAPERS.into_iter().find(|paper| paper.name == name).map(Papers::One);
    found.ok_or_else(|| format!("allowed: {}, all", PAPERS.map(|paper| paper.name).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    #[test]
    fn the_help_names_every_study_and_what_is_no_figure_of_it() {
        let command = ReproduceOptions::augment_args(clap::Command::new("reproduce"));
        let item = command.get_arguments().find(|argument| argument.get_id() == "item").unwrap();
        let help = item.get_help().unwrap().to_string();
        for study in PAPERS.into_iter().flat_map(|paper| paper.studies) {
            let items = study.items.iter().filter(|item| !item.starts_with("fig"));
            for word in items.chain([&study.name]) {
                assert!(help.contains(word), "{word} is missing");
            }
        }
    }
}
