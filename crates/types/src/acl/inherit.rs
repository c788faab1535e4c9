//! Files and directories inherit from the ACL of the directory that they are made in (RFC 8881 §6.4.3.1).

use super::{Ace, AceFlags, Acl};

impl Acl {
    /// The ACL of a file that is made in a directory with this one. `None`: nothing is inherited.
    pub fn inherited(&self, is_directory: bool) -> Option<Acl> {
        let aces: Vec<Ace> = self.aces().iter().filter_map(|ace| inherited(ace, is_directory)).collect();
        if aces.is_empty() { None } else { Some(Acl(aces.into())) }
    }
}

fn inherited(ace: &Ace, is_directory: bool) -> Option<Ace> {
    let flags = ace.flags;
    let to_files = flags.contains(AceFlags::FILE_INHERIT);
    let to_directories = flags.contains(AceFlags::DIRECTORY_INHERIT);
    let stops = flags.contains(AceFlags::NO_PROPAGATE);
    let flags = match (is_directory, to_files, to_directories) {
        (false, true, _) => AceFlags::NONE,
        (true, _, true) if stops => AceFlags::NONE,
        (true, _, true) => flags.without(AceFlags::INHERIT_ONLY),
        // For the files below, and not about the directory itself.
        (true, true, false) if !stops => AceFlags::FILE_INHERIT | AceFlags::INHERIT_ONLY,
        _ => return None,
    };
    Some(Ace { flags, ..*ace })
}
