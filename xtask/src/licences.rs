//! SPDX licence expressions: whether a list of allowed licences satisfies one.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

/// Whether the expression can be fulfilled with allowed licences alone. `/` is the old way to write `OR`.
pub fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let answer = parser.any_of()?;
    ensure!(parser.words.is_empty(), "`{}` is left over in `{expression}`", parser.words.join(" "));
    Ok(answer)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    fn any_of(&mut self) -> Result<bool> {
        let mut answer = self.all_of()?;
        while self.takes("OR") {
            answer |= self.all_of()?;
        }
        Ok(answer)
    }

    fn all_of(&mut self) -> Result<bool> {
        let mut answer = self.one()?;
        while self.takes("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    fn one(&mut self) -> Result<bool> {
        if self.takes("(") {
            let answer = self.any_of()?;
            ensure!(self.takes(")"), "a parenthesis is not closed");
            return Ok(answer);
        }
        let mut licence = self.next()?.to_owned();
        if self.takes("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Ok(self.allowed.contains(&licence))
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn next(&mut self) -> Result<&'a str> {
        match self.words.split_first() {
            Some((word, rest)) if !["OR", "AND", "WITH", "(", ")"].contains(word) => {
                self.words = rest;
                Ok(word)
            }
            _ => bail!("a licence is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(expression: &str) -> bool {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        is_allowed(expression, &BTreeSet::from(allowed)).unwrap()
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(allowed("MIT"));
        assert!(allowed("GPL-3.0 OR MIT"));
        assert!(allowed("MIT/Apache-2.0"));
        assert!(allowed("Apache-2.0 / MIT"));
        assert!(!allowed("GPL-3.0 OR Apache-2.0"));
    }

    #[test]
    fn each_part_of_a_conjunction_must_be_allowed() {
        assert!(allowed("ISC AND (Apache-2.0 OR MIT)"));
        assert!(!allowed("ISC AND (Apache-2.0 OR GPL-3.0)"));
        assert!(!allowed("GPL-3.0 AND ISC OR Apache-2.0"));
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert!(allowed("Apache-2.0 WITH LLVM-exception"));
        assert!(!allowed("MIT WITH LLVM-exception"));
    }

    #[test]
    fn a_malformed_expression_is_an_error() {
        for expression in ["", "MIT OR", "(MIT", "MIT ISC", "MIT)", "WITH MIT"] {
            assert!(is_allowed(expression, &BTreeSet::new()).is_err(), "{expression}");
        }
    }
}
