//! Who is counted, and how databases name it.

use api::Scope;

/// As all databases keep it.
pub fn scope_number(scope: Scope) -> i16 {
    match scope {
        Scope::User => 0,
        Scope::Group => 1,
        Scope::Tree => 2,
    }
}
