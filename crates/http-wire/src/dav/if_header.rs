//! The If header (RFC 4918 §10.4): when a request holds, and which lock tokens it submits.

use super::DavHeaderError;
use super::header::{is_absolute_uri, is_uri_text};

/// Bounds of one header. A client locks a handful of things; a thousand conditions are an attack.
const LISTS_MAX: usize = 128;
const CONDITIONS_MAX: usize = 512;
const HEADER_BYTES_MAX: usize = 32 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfHeader {
    /// At least one; the header holds if one of them does.
    lists: Vec<ConditionList>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionList {
    /// The URL or path that the list speaks of; `None`: the request's own.
    pub resource: Option<String>,
    /// At least one; the list holds if all of them do.
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub is_negated: bool,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Without the angle brackets.
    Token(String),
    /// As in an ETag header, quotes and `W/` included.
    ETag(String),
}

/// State of a resource, to compare conditions with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceState {
    /// Of all locks that cover the resource, those on collections above it included.
    pub tokens: Vec<String>,
    /// As in its ETag header; `None` if nothing is there.
    pub etag: Option<String>,
}

impl IfHeader {
    /// A header that came in several fields is not joined but refused by whoever collects them.
    pub fn parse(value: &[u8]) -> Result<IfHeader, DavHeaderError> {
        if value.len() > HEADER_BYTES_MAX {
            return Err(DavHeaderError::IfTooLong);
        }
        let text = std::str::from_utf8(value).map_err(|_| DavHeaderError::If("it is not UTF-8"))?;
        Parser { rest: text, conditions: 0 }.header()
    }

    pub fn lists(&self) -> &[ConditionList] {
        &self.lists
    }

    /// Resources that the lists name, each once, so that their states can be looked up before `holds`.
    pub fn resources(&self) -> Vec<Option<&str>> {
        let mut resources: Vec<_> = self.lists.iter().map(|list| list.resource.as_deref()).collect();
        resources.sort_unstable();
        resources.dedup();
        resources
    }

    /// Every state token that occurs, each once. A token is submitted wherever it stands, also behind `Not` and in a
    /// list that does not hold (§10.4.1). `DAV:no-lock` among them is nobody's lock.
    pub fn submitted_tokens(&self) -> Vec<&str> {
        let states = self.lists.iter().flat_map(|list| &list.conditions);
        let mut tokens: Vec<_> = states
            .filter_map(|condition| match &condition.state {
                State::Token(token) => Some(token.as_str()),
                State::ETag(_) => None,
            })
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// §10.4.3: whether one of the lists holds. If not, the answer is 412. `resolve` may be asked of a resource more
    /// than once.
    pub fn holds(&self, resolve: impl Fn(Option<&str>) -> ResourceState) -> bool {
        self.lists.iter().any(|list| list.holds(&resolve(list.resource.as_deref())))
    }
}

impl ConditionList {
    fn holds(&self, resource: &ResourceState) -> bool {
        self.conditions.iter().all(|condition| condition.state.is_of(resource) != condition.is_negated)
    }
}

impl State {
    fn is_of(&self, resource: &ResourceState) -> bool {
        match self {
            State::Token(token) => resource.tokens.contains(token),
            // §10.4.4 leaves the choice; strong comparison (RFC 9110 §8.8.3.2), so a weak one never matches.
            State::ETag(etag) => !etag.starts_with("W/") && resource.etag.as_ref() == Some(etag),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    conditions: usize,
}

impl<'a> Parser<'a> {
    /// `If = 1*No-tag-list | 1*Tagged-list`
    fn header(mut self) -> Result<IfHeader, DavHeaderError> {
        let (mut lists, mut resource, mut is_listed) = (Vec::new(), None, true);
        loop {
            self.blanks();
            if self.rest.is_empty() {
                break;
            }
            if self.take("(") {
                if lists.len() >= LISTS_MAX {
                    return Err(DavHeaderError::IfTooLong);
                }
                lists.push(ConditionList { resource: resource.clone(), conditions: self.list()? });
                is_listed = true;
                continue;
            }
            let tag = self.tag()?;
            if resource.is_none() && !lists.is_empty() {
                return Err(DavHeaderError::If("lists with and without a resource are mixed"));
            }
            if !is_listed {
                return Err(DavHeaderError::If("a resource has no list"));
            }
            (resource, is_listed) = (Some(tag), false);
        }
        match lists.is_empty() || !is_listed {
            true => Err(DavHeaderError::If("there is no list")),
            false => Ok(IfHeader { lists }),
        }
    }

    /// `Resource-Tag = "<" Simple-ref ">"`: a URL or an absolute path.
    fn tag(&mut self) -> Result<String, DavHeaderError> {
        let tag = self.between_brackets()?;
        match is_uri_text(tag) {
            true => Ok(tag.to_owned()),
            false => Err(DavHeaderError::If("a resource is not a URL")),
        }
    }

    /// `List = "(" 1*Condition ")"`, behind the parenthesis.
    fn list(&mut self) -> Result<Vec<Condition>, DavHeaderError> {
        let mut conditions = Vec::new();
        loop {
            self.blanks();
            if self.take(")") {
                break;
            }
            self.conditions += 1;
            if self.conditions > CONDITIONS_MAX {
                return Err(DavHeaderError::IfTooLong);
            }
            conditions.push(self.condition()?);
        }
        match conditions.is_empty() {
            true => Err(DavHeaderError::If("a list is empty")),
            false => Ok(conditions),
        }
    }

    /// `Condition = ["Not"] (State-token | "[" entity-tag "]")`
    fn condition(&mut self) -> Result<Condition, DavHeaderError> {
        let is_negated = self.rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"));
        if is_negated {
            self.rest = &self.rest[3..];
            self.blanks();
        }
        let state = if self.take("[") { self.etag()? } else { self.state_token()? };
        Ok(Condition { is_negated, state })
    }

    fn state_token(&mut self) -> Result<State, DavHeaderError> {
        let token = self.between_brackets()?;
        match is_absolute_uri(token) {
            true => Ok(State::Token(token.to_owned())),
            false => Err(DavHeaderError::If("a state token is not a URL")),
        }
    }

    /// `entity-tag "]"`, behind the bracket. The text between the quotes is compared, not validated.
    fn etag(&mut self) -> Result<State, DavHeaderError> {
        let bad = DavHeaderError::If("an entity tag is not quoted");
        self.blanks();
        let (whole, weak) = (self.rest, if self.take("W/") { 2 } else { 0 });
        if !self.take("\"") {
            return Err(bad);
        }
        let len = self.rest.find('"').ok_or(bad)?;
        self.rest = &self.rest[len + 1..];
        self.blanks();
        if !self.take("]") {
            return Err(bad);
        }
        Ok(State::ETag(whole[..weak + len + 2].to_owned()))
    }

    fn between_brackets(&mut self) -> Result<&'a str, DavHeaderError> {
        let bad = DavHeaderError::If("angle brackets are missing");
        let (inside, rest) = self.rest.strip_prefix('<').and_then(|rest| rest.split_once('>')).ok_or(bad)?;
        self.rest = rest;
        Ok(inside)
    }

    fn take(&mut self, what: &str) -> bool {
        self.rest.strip_prefix(what).map(|rest| self.rest = rest).is_some()
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }
}

#[cfg(test)]
mod tests;
