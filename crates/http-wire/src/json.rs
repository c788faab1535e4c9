//! Bodies of JSON.

use serde::de::DeserializeOwned;

/// The error is for the client.
///
/// serde takes a list for the fields of a struct in their order: `[]` would be an object in which nothing is said.
pub fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err("not a JSON object".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, serde::Deserialize)]
    struct Asked {
        #[serde(default)]
        names: Vec<String>,
    }

    #[test]
    fn a_list_is_not_taken_for_the_fields_of_an_object() {
        assert_eq!(object(b" \r\n{\"names\": [\"a\"]}"), Ok(Asked { names: vec!["a".to_owned()] }));
        assert_eq!(object(b"{}"), Ok(Asked { names: Vec::new() }));
        for bad in [&b"[]"[..], b" []", b"[[\"a\"]]", b"null", b"\"\"", b"{", b"{\"names\": 1}", b" ", b""] {
            assert!(object::<Asked>(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
