//! Answers to the questions of a repair, by a person or by a script for all questions.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Result, bail};

/// Problems of a kind that are shown before the question.
const EXAMPLES: usize = 3;

/// Data that a repair may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// Nothing that the log could not give back.
    Nothing,
    /// Data that nobody can read now, or that could be wanted after all.
    Data,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Asking,
    /// Yes to all repairs that lose nothing.
    All,
    /// No to everything.
    Quit,
}

pub struct Answers<R, W> {
    input: R,
    output: W,
    mood: Mood,
    is_script: bool,
}

/// From the terminal; without one, somebody must have said yes.
pub fn of_person(yes: bool) -> Result<Answers<impl BufRead, impl Write>> {
    if !yes && !std::io::stdin().is_terminal() {
        bail!("standard input is no terminal; repair at a terminal, or add --yes");
    }
    let mood = if yes { Mood::All } else { Mood::Asking };
    Ok(Answers { input: std::io::stdin().lock(), output: std::io::stderr(), mood, is_script: yes })
}

impl<R: BufRead, W: Write> Answers<R, W> {
    /// Shows some of `problems`, of which there are `count`, and asks whether to do what `question` says. `agreed`: it
    /// was asked for on the command line.
    pub fn ask(
        &mut self,
        title: &str,
        problems: &[String],
        count: &str,
        question: &str,
        price: Price,
        agreed: bool,
    ) -> Result<bool> {
        writeln!(self.output, "{title}: {count}")?;
        for problem in problems.iter().take(EXAMPLES) {
            writeln!(self.output, "  {problem}")?;
        }
        let is_yes = match (self.mood, price) {
            (Mood::Quit, _) => false,
            (Mood::All, Price::Nothing) => true,
            (Mood::All, Price::Data) if self.is_script => agreed,
            _ => self.read(question)?,
        };
        writeln!(self.output, "  {question}: {}", if is_yes { "yes" } else { "no, they are left" })?;
        Ok(is_yes)
    }

    fn read(&mut self, question: &str) -> Result<bool> {
        loop {
            write!(self.output, "  {question}? (y)es, (n)o, (a)ll that loses nothing, (q)uit: ")?;
            self.output.flush()?;
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                self.mood = Mood::Quit;
                return Ok(false);
            }
            match line.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                "q" | "quit" => {
                    self.mood = Mood::Quit;
                    return Ok(false);
                }
                "a" | "all" => {
                    self.mood = Mood::All;
                    return Ok(true);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(typed: &str, mood: Mood, prices: &[(Price, bool)]) -> (Vec<bool>, String) {
        let is_script = mood == Mood::All;
        let mut answers = Answers { input: typed.as_bytes(), output: Vec::new(), mood, is_script };
        let problems: Vec<String> = (0..5).map(|number| format!("problem {number}")).collect();
        let said = prices
            .iter()
            .map(|(price, agreed)| {
                answers.ask("things", &problems, "5", "mend them", *price, *agreed).unwrap()
            })
            .collect();
        (said, String::from_utf8(answers.output).unwrap())
    }

    const NOTHING: (Price, bool) = (Price::Nothing, false);
    const DATA: (Price, bool) = (Price::Data, false);

    #[test]
    fn a_person_is_asked_for_each_kind_until_all_or_quit() {
        assert_eq!(asked("y\nn\n", Mood::Asking, &[NOTHING, DATA]).0, [true, false]);
        assert_eq!(asked("what\nyes\nquit\n", Mood::Asking, &[NOTHING; 4]).0, [true, false, false, false]);
        assert_eq!(asked("", Mood::Asking, &[NOTHING; 2]).0, [false, false]);
    }

    #[test]
    fn all_does_not_speak_for_what_gives_up_data() {
        assert_eq!(
            asked("a\nn\n", Mood::Asking, &[NOTHING, NOTHING, DATA, NOTHING]).0,
            [true, true, false, true]
        );
    }

    #[test]
    fn a_script_gives_up_data_only_where_it_said_so() {
        assert_eq!(asked("", Mood::All, &[NOTHING, DATA, (Price::Data, true)]).0, [true, false, true]);
    }

    #[test]
    fn three_examples_are_shown() {
        let shown = asked("n\n", Mood::Asking, &[NOTHING]).1;
        assert!(shown.contains("things: 5\n") && shown.contains("problem 2") && !shown.contains("problem 3"));
    }
}
