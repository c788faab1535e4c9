//! From the scopes of a token to grants.
//!
//! WLCG profile 1.x: a `storage.` scope has a path, or the whole token is refused; what other services mean by their scopes
//! is nothing here. Creating is not overwriting, and neither changing nor staging is reading.

use api::{Activities, Activity, PathGrant};
use types::Name;

use crate::config::Profile;
use crate::paths;

const SCOPES_MAX: usize = 128;

const READ: &[Activity] = &[Activity::ReadMetadata, Activity::List, Activity::Download];
/// Reading was part of it once; profile 1.3 takes that out for tokens of every version (§2.2.1).
const STAGE: &[Activity] = &[Activity::ReadMetadata, Activity::List, Activity::Stage];
const POLL: &[Activity] = &[Activity::ReadMetadata];
const CREATE: &[Activity] =
    &[Activity::ReadMetadata, Activity::Upload, Activity::Manage, Activity::UpdateMetadata];
const MODIFY: &[Activity] = &[
    Activity::ReadMetadata,
    Activity::List,
    Activity::Upload,
    Activity::Manage,
    Activity::UpdateMetadata,
    Activity::Delete,
];

const COMPUTE: [&str; 4] = ["compute.read", "compute.modify", "compute.create", "compute.cancel"];

/// `None`: the token has no capability, so that its groups may speak. One for computing is a capability as well, and gives
/// nothing here (WLCG profile §2.2.3).
pub fn grants(scope: &str, profile: Profile, base: &[Name]) -> Result<Option<Vec<PathGrant>>, String> {
    let mut grants = Vec::new();
    let mut has_other = false;
    for word in scope.split(' ').filter(|word| !word.is_empty()) {
        let (name, path) = match word.split_once(':') {
            Some((name, path)) => (name, Some(path)),
            None => (word, None),
        };
        let Some(activities) = activities(name, profile) else {
            has_other |= profile != Profile::SciTokens && COMPUTE.contains(&name);
            continue;
        };
        if grants.len() == SCOPES_MAX {
            return Err(format!("the token has more than {SCOPES_MAX} storage scopes"));
        }
        let path = path.ok_or_else(|| format!("the token's scope `{name}` has no path"))?;
        grants.push(grant(activities, path, base)?);
    }
    Ok((has_other || !grants.is_empty()).then_some(grants))
}

fn activities(name: &str, profile: Profile) -> Option<&'static [Activity]> {
    match (profile, name) {
        (Profile::SciTokens, "read") => Some(READ),
        (Profile::SciTokens, "write") => Some(MODIFY),
        (Profile::SciTokens, _) => None,
        (_, "storage.read") => Some(READ),
        (_, "storage.create") => Some(CREATE),
        (_, "storage.modify") => Some(MODIFY),
        (_, "storage.stage") => Some(STAGE),
        (_, "storage.poll") => Some(POLL),
        _ => None,
    }
}

fn grant(activities: &[Activity], path: &str, base: &[Name]) -> Result<PathGrant, String> {
    let below = paths::parse_encoded(path).map_err(|error| format!("the token's scope: {error}"))?;
    let is_below_only = !below.is_empty() && path.ends_with('/');
    let path = base.iter().cloned().chain(below).collect();
    Ok(PathGrant { activities: Activities::of(activities), path, is_below_only })
}

#[cfg(test)]
mod tests {
    use api::Caller;

    use super::*;

    fn names(path: &str) -> Vec<Name> {
        paths::parse(path.as_bytes()).unwrap()
    }

    fn caller(scope: &str, profile: Profile) -> Caller {
        let grants = grants(scope, profile, &names("/vo")).unwrap().unwrap();
        Caller { grants: Some(grants.into()), ..Caller::anonymous() }
    }

    #[test]
    fn a_scope_is_relative_to_the_base_path_of_its_issuer() {
        let caller = caller("openid storage.read:/foo/bar compute.read", Profile::Wlcg);
        assert!(caller.may(Activity::Download, &names("/vo/foo/bar/qux")));
        assert!(!caller.may(Activity::Download, &names("/vo/foo/bargain")));
        assert!(!caller.may(Activity::Download, &names("/foo/bar")));
        assert!(!caller.may(Activity::Upload, &names("/vo/foo/bar/qux")));
    }

    #[test]
    fn the_root_scope_is_all_of_the_base_path_and_no_more() {
        let caller = caller("storage.modify:/", Profile::Wlcg);
        assert!(caller.may(Activity::Upload, &names("/vo")));
        assert!(!caller.may(Activity::Upload, &names("/other")));
    }

    #[test]
    fn creating_makes_directories_and_renames_but_deletes_and_reads_nothing() {
        let caller = caller("storage.create:/", Profile::Wlcg);
        for activity in [Activity::Upload, Activity::Manage, Activity::UpdateMetadata, Activity::ReadMetadata]
        {
            assert!(caller.may(activity, &names("/vo/x")), "{activity:?}");
        }
        for activity in [Activity::Delete, Activity::Download, Activity::List] {
            assert!(!caller.may(activity, &names("/vo/x")), "{activity:?}");
        }
    }

    #[test]
    fn neither_modifying_nor_staging_nor_polling_is_reading() {
        assert!(!caller("storage.modify:/", Profile::Wlcg).may(Activity::Download, &names("/vo/x")));
        assert!(caller("storage.modify:/", Profile::Wlcg).may(Activity::Delete, &names("/vo/x")));
        assert!(!caller("storage.stage:/", Profile::Wlcg).may(Activity::Download, &names("/vo/x")));
        assert!(caller("storage.stage:/", Profile::Wlcg).may(Activity::Stage, &names("/vo/x")));
        assert!(!caller("storage.poll:/", Profile::Wlcg).may(Activity::Download, &names("/vo/x")));
    }

    #[test]
    fn a_capability_for_computing_is_one_and_allows_nothing_here() {
        for scope in ["compute.read", "openid compute.create:/x"] {
            assert_eq!(grants(scope, Profile::Wlcg, &[]), Ok(Some(Vec::new())), "{scope}");
        }
        assert_eq!(grants("compute.read", Profile::SciTokens, &[]), Ok(None), "no word of theirs");
    }

    #[test]
    fn a_trailing_slash_is_only_below() {
        let caller = caller("storage.read:/foo/", Profile::Wlcg);
        assert!(!caller.may(Activity::Download, &names("/vo/foo")));
        assert!(caller.may(Activity::Download, &names("/vo/foo/x")));
    }

    #[test]
    fn a_storage_scope_without_a_path_spoils_the_token() {
        for bad in
            ["storage.read", "storage.read:", "storage.read:foo", "storage.read:/ storage.create:/a/../b"]
        {
            assert!(grants(bad, Profile::Wlcg, &[]).is_err(), "{bad}");
        }
        assert!(grants(&"storage.read:/a ".repeat(SCOPES_MAX + 1), Profile::Wlcg, &[]).is_err());
    }

    #[test]
    fn each_profile_has_its_own_words() {
        assert!(caller("write:/home", Profile::SciTokens).may(Activity::Delete, &names("/vo/home/x")));
        assert!(!caller("write:/home", Profile::SciTokens).may(Activity::Download, &names("/vo/home/x")));
        assert_eq!(grants("read:/", Profile::Wlcg, &[]), Ok(None));
        assert_eq!(grants("storage.read:/", Profile::SciTokens, &[]), Ok(None));
        assert_eq!(grants("openid", Profile::Wlcg, &[]), Ok(None));
    }
}
