//! The reference model of extended attributes.

use api::SetXattr;
use types::Identity;

use super::{Answer, Model, Refusal, Seen, WRITE};

impl Model {
    fn may_change(&self, who: &Identity, file: usize) -> Answer<()> {
        let node = self.read(file)?;
        let is_sticky = node.seen.is_directory && node.seen.mode & 0o1000 != 0;
        let owns = who.uid == 0 || who.uid == node.seen.uid;
        if !(node.is_regular || node.seen.is_directory) || (is_sticky && !owns) {
            return Err(Refusal::NotPermitted);
        }
        self.need(who, &node.seen, WRITE)
    }

    pub fn set_xattr(
        &mut self,
        who: &Identity,
        file: usize,
        (name, value): (&str, u8),
        how: SetXattr,
    ) -> Answer<Seen> {
        self.may_change(who, file)?;
        let now = self.now;
        let node = self.write(file);
        match (node.xattrs.iter_mut().find(|(known, _)| known == name), how) {
            (Some(_), SetXattr::Create) => return Err(Refusal::Exists),
            (None, SetXattr::Replace) => return Err(Refusal::NotFound),
            (Some(known), _) => known.1 = value,
            (None, _) => node.xattrs.push((name.to_owned(), value)),
        }
        node.seen.ctime = now;
        Ok(node.seen)
    }

    pub fn remove_xattr(&mut self, who: &Identity, file: usize, name: &str) -> Answer<Seen> {
        self.may_change(who, file)?;
        let now = self.now;
        let node = self.write(file);
        let at = node.xattrs.iter().position(|(known, _)| known == name).ok_or(Refusal::NotFound)?;
        node.xattrs.remove(at);
        node.seen.ctime = now;
        Ok(node.seen)
    }
}
