//! Evaluation, modes and inheritance by the rules of RFC 8881 §6, and properties that hold for every ACL.

use proptest::prelude::*;

use super::*;
use crate::FileKind;
use crate::permission::{self, Removal, allows, granted, judge_removal};

const R: Access = Access::READ;
const W: Access = Access::WRITE;
const X: Access = Access::EXECUTE;

fn file(mode: u32, uid: u32, gid: u32) -> Attributes {
    Attributes { has_acl: true, ..permission::tests::file(mode, uid, gid) }
}

fn dir(mode: u32) -> Attributes {
    Attributes { kind: FileKind::Directory, ..file(mode, 10, 20) }
}

fn acl(aces: &[Ace]) -> Acl {
    Acl::new(aces.to_vec()).unwrap()
}

const OWNER: AceWho = AceWho::Owner;
const GROUP: AceWho = AceWho::Group;
const EVERYONE: AceWho = AceWho::Everyone;
const BOB: AceWho = AceWho::User(30);
const STAFF: AceWho = AceWho::NamedGroup(40);

fn bob() -> Identity {
    Identity::new(30, 31, &[40])
}

#[test]
fn the_first_entry_that_names_an_access_decides_it() {
    let of = |aces: &[Ace]| acl(aces).judge(&bob(), &file(0, 10, 20));
    let verdict = of(&[Ace::allow(BOB, R), Ace::deny(EVERYONE, R | W), Ace::allow(BOB, W | X)]);
    assert_eq!(verdict, Verdict { allowed: R | X, denied: W });
    let verdict = of(&[Ace::deny(STAFF, R), Ace::allow(BOB, R)]);
    assert_eq!(verdict, Verdict { allowed: Access::NONE, denied: R });
    // RFC 8881 §6.2.1: what is left over is neither allowed nor denied, and so not granted.
    assert_eq!(of(&[]), Verdict::default());
    assert!(!allows(&bob(), &file(0o777, 10, 20), Some(&acl(&[])), R));
}

#[test]
fn only_entries_of_the_caller_count() {
    let says = |who: &Identity, ace| acl(&[Ace::allow(ace, R)]).judge(who, &file(0, 10, 20)).allowed == R;
    let (owner, member) = (Identity::new(10, 1, &[]), Identity::new(11, 1, &[20]));
    assert!(says(&owner, OWNER) && !says(&member, OWNER));
    assert!(says(&member, GROUP) && !says(&owner, GROUP));
    assert!(says(&bob(), EVERYONE) && says(&owner, EVERYONE));
    assert!(says(&bob(), BOB) && !says(&member, BOB));
    assert!(says(&bob(), STAFF) && !says(&member, STAFF));
    // A uid is no gid.
    assert!(!says(&Identity::new(40, 1, &[]), STAFF) && !says(&Identity::new(1, 30, &[]), BOB));
}

#[test]
fn entries_that_are_only_inherited_say_nothing_of_the_file_itself() {
    let only = AceFlags::FILE_INHERIT | AceFlags::INHERIT_ONLY;
    let acl = acl(&[Ace::deny(EVERYONE, R).inherited_by(only), Ace::allow(EVERYONE, R)]);
    assert!(allows(&bob(), &file(0, 10, 20), Some(&acl), R));
    assert_eq!(acl.mode(), 0o444);
}

#[test]
fn owners_can_always_mend_the_acl_and_root_may_anything() {
    let acl = acl(&[Ace::deny(EVERYONE, Access::from_bits(0x1f_07ff).unwrap())]);
    let of_owner = granted(&Identity::new(10, 1, &[]), &file(0, 10, 20), Some(&acl));
    assert!(of_owner.contains(Access::WRITE_ACL | Access::READ_ACL | Access::WRITE_ATTRIBUTES));
    assert!(!of_owner.intersects(R | W | X | Access::WRITE_OWNER));
    let of_root = granted(&Identity::root(), &file(0, 10, 20), Some(&acl));
    assert!(of_root.contains(R | W | Access::WRITE_OWNER) && !of_root.contains(X));
    let executable = self::acl(&[Ace::allow(BOB, X)]);
    assert!(granted(&Identity::root(), &file(0, 10, 20), Some(&executable)).contains(X));
}

#[test]
fn one_way_of_writing_alone_is_not_writing() {
    for half in [Access::ADD_FILE, Access::ADD_SUBDIRECTORY] {
        let acl = acl(&[Ace::allow(EVERYONE, half)]);
        assert_eq!(acl.mode(), 0);
        assert!(!allows(&bob(), &file(0, 10, 20), Some(&acl), W));
    }
}

/// RFC 8881 §6.2.1.3.2, sentence by sentence.
#[test]
fn removal_goes_by_delete_or_delete_child_and_else_by_adding_files() {
    let removal = |mode, above: Option<&[Ace]>, below: Option<&[Ace]>| {
        let (above, below) = (above.map(acl), below.map(acl));
        judge_removal(&bob(), (&dir(mode), above.as_ref()), (&file(0, 10, 20), below.as_ref()))
    };
    let (child, delete) = (Access::DELETE_CHILD, Access::DELETE);
    let search = Ace::allow(EVERYONE, X);
    let writable = [search, Ace::allow(EVERYONE, W)];
    assert_eq!(removal(0, Some(&[search, Ace::allow(BOB, child)]), None), Removal::Allowed);
    assert_eq!(removal(0o005, None, Some(&[Ace::allow(BOB, delete)])), Removal::Allowed);
    // "even if the parent or target explicitly denies one of these"
    let denies = [search, Ace::deny(BOB, child)];
    assert_eq!(removal(0, Some(&denies), Some(&[Ace::allow(BOB, delete)])), Removal::Allowed);
    // Neither says anything: ADD_FILE, and the sticky bit.
    assert_eq!(removal(0, Some(&writable), None), Removal::Allowed);
    assert_eq!(removal(0, Some(&[search]), None), Removal::Denied);
    assert_eq!(removal(0o1000, Some(&writable), None), Removal::Sticky);
    assert_eq!(removal(0o007, None, None), Removal::Allowed);
    assert_eq!(removal(0o1007, None, None), Removal::Sticky);
    // Denied by one and allowed by none.
    assert_eq!(removal(0, Some(&[writable[0], writable[1], Ace::deny(BOB, child)]), None), Removal::Denied);
    assert_eq!(removal(0o007, None, Some(&[Ace::deny(BOB, delete)])), Removal::Denied);
    // A user that may not search the directory does not reach its entries.
    assert_eq!(removal(0, Some(&[Ace::allow(BOB, child)]), None), Removal::Denied);
}

#[test]
fn files_inherit_what_is_for_files_and_directories_all() {
    use AceFlags as F;
    let of = |flags: F, is_directory| {
        let acl = acl(&[Ace::allow(BOB, R).inherited_by(flags)]);
        acl.inherited(is_directory).map(|acl| acl.aces()[0].flags)
    };
    let (f, d, n, i) = (F::FILE_INHERIT, F::DIRECTORY_INHERIT, F::NO_PROPAGATE, F::INHERIT_ONLY);
    assert_eq!((of(F::NONE, false), of(F::NONE, true)), (None, None));
    assert_eq!((of(f, false), of(f, true)), (Some(F::NONE), Some(f | i)));
    assert_eq!((of(d, false), of(d, true)), (None, Some(d)));
    assert_eq!((of(f | d, false), of(f | d, true)), (Some(F::NONE), Some(f | d)));
    assert_eq!((of(f | d | i, false), of(f | d | i, true)), (Some(F::NONE), Some(f | d)));
    assert_eq!((of(f | n, false), of(f | n, true)), (Some(F::NONE), None));
    assert_eq!((of(d | n, false), of(d | n, true)), (None, Some(F::NONE)));
}

#[test]
fn chmod_masks_entries_of_named_users_and_leaves_entries_to_inherit() {
    let to_all = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
    let before = acl(&[
        Ace::allow(OWNER, R | W | X),
        Ace::allow(BOB, R | W | X | Access::WRITE_OWNER).inherited_by(to_all),
        Ace::deny(STAFF, X),
        Ace::allow(GROUP, R | X),
        Ace::allow(EVERYONE, R),
    ]);
    assert_eq!(before.mode(), 0o754);
    let after = before.with_mode(0o640).unwrap();
    let expected = [
        Ace::allow(OWNER, R | W),
        Ace::allow(BOB, R | W | X | Access::WRITE_OWNER).inherited_by(to_all | AceFlags::INHERIT_ONLY),
        Ace::allow(BOB, R | Access::WRITE_OWNER),
        Ace::deny(STAFF, X),
        Ace::allow(GROUP, R),
    ];
    assert_eq!(after.aces(), expected);
    assert_eq!(after.with_mode(0o640).unwrap(), after, "it does not grow");
}

#[test]
fn an_inherited_acl_is_bounded_by_a_mode_and_not_widened() {
    let to_all = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
    let inherited = acl(&[
        Ace::allow(OWNER, R | W | X).inherited_by(to_all),
        Ace::allow(BOB, R | W).inherited_by(to_all),
        Ace::deny(EVERYONE, X).inherited_by(to_all),
    ]);
    assert_eq!(inherited.bounded_by(0o777), Ok(inherited.clone()));
    let bounded = inherited.bounded_by(0o640).unwrap();
    let only = to_all | AceFlags::INHERIT_ONLY;
    let expected = [
        Ace::allow(OWNER, R | W | X).inherited_by(only),
        Ace::allow(OWNER, R | W),
        Ace::allow(BOB, R | W).inherited_by(only),
        Ace::allow(BOB, R),
        Ace::deny(EVERYONE, X).inherited_by(to_all),
    ];
    assert_eq!(bounded.aces(), expected);
    assert_eq!(bounded.mode(), 0o600);
}

#[test]
fn the_maker_of_a_file_is_not_shut_out_of_it_by_an_inherited_acl() {
    let of_bob = acl(&[Ace::allow(BOB, R | W | X)]).bounded_by(0o640).unwrap();
    assert_eq!(of_bob.aces(), [Ace::allow(BOB, R), Ace::allow(OWNER, R | W)]);
    let of_all = acl(&[Ace::allow(EVERYONE, R | W | X)]).bounded_by(0o600).unwrap();
    assert_eq!((of_all.aces(), of_all.mode()), (&[Ace::allow(OWNER, R | W)][..], 0o600));
    let denied = acl(&[Ace::deny(OWNER, W), Ace::allow(BOB, R)]).bounded_by(0o600).unwrap();
    assert_eq!(denied.mode(), 0o400, "what is denied stays denied");
}

#[test]
fn chmod_and_bounds_take_the_removal_of_entries_with_the_writing() {
    let child = Access::DELETE_CHILD;
    let before =
        acl(&[Ace::allow(BOB, R | W | child), Ace::allow(GROUP, R | W | child), Ace::deny(STAFF, child)]);
    let named =
        |acl: Result<Acl, AclTooLong>| acl.unwrap().aces().iter().find(|ace| ace.who == BOB).unwrap().mask;
    assert_eq!(named(before.with_mode(0o750)), R);
    assert_eq!(named(before.with_mode(0o770)), R | W | child);
    assert_eq!(named(before.bounded_by(0o750)), R);
    assert_eq!(named(before.bounded_by(0o770)), R | W | child);
    let denied = |acl: Acl| acl.aces().contains(&Ace::deny(STAFF, child));
    assert!(denied(before.with_mode(0o750).unwrap()) && denied(before.bounded_by(0o750).unwrap()));
}

/// As a client reads it and gives it back.
fn is_settable(acl: &Acl) -> bool {
    Acl::new(acl.aces().to_vec()).as_ref() == Ok(acl)
}

#[test]
fn modes_and_inheritance_make_settable_acls_of_the_largest_settable_acl() {
    let to_all = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
    let rights = R | W | X | Access::WRITE_OWNER;
    for (flags, who) in [(to_all, BOB), (to_all, EVERYONE), (to_all, GROUP), (AceFlags::FILE_INHERIT, BOB)] {
        for kind in [AceKind::Allow, AceKind::Deny] {
            let set = acl(&vec![Ace { kind, flags, mask: rights, who }; Acl::HANDED_ON_MAX]);
            let mut above = set;
            for _ in 0..3 {
                for mode in [0o700, 0o070, 0o007, 0o752, 0o257] {
                    above = above.with_mode(mode).unwrap();
                    assert!(is_settable(&above), "{who:?} {kind:?} {mode:o}");
                }
                assert!(above.aces().len() > 2 * Acl::HANDED_ON_MAX || flags != to_all);
                assert!(Acl::decode(&above.encode()) == Ok(above.clone()));
                let below = above.inherited(true).unwrap();
                assert_eq!(below.aces().len(), Acl::HANDED_ON_MAX);
                above = match below.is_effective() {
                    true => below.bounded_by(0o640).unwrap(),
                    false => Acl::of_mode_handing_on(0o257, &below).unwrap(),
                };
                assert!(is_settable(&above), "{who:?} {kind:?}");
            }
        }
    }
}

#[test]
fn an_acl_that_modes_or_inheritance_could_make_too_long_cannot_be_set() {
    let plain = |count| vec![Ace::allow(BOB, R); count];
    let handed_on = |count| vec![Ace::allow(BOB, R).inherited_by(AceFlags::FILE_INHERIT); count];
    let merely = AceFlags::FILE_INHERIT | AceFlags::INHERIT_ONLY;
    let handed_on_only = |count| vec![Ace::allow(BOB, R).inherited_by(merely); count];
    let max = Acl::HANDED_ON_MAX;
    for (fits, does_not) in [
        (plain(2 * max), plain(2 * max + 1)),
        (handed_on(max), handed_on(max + 1)),
        (handed_on_only(max), handed_on_only(max + 1)),
        ([handed_on_only(max), plain(max)].concat(), [handed_on(max), plain(1)].concat()),
        // A mode takes these away.
        (vec![Ace::allow(EVERYONE, R); Acl::ACES_MAX], vec![Ace::allow(EVERYONE, R); Acl::ACES_MAX + 1]),
    ] {
        let acl = Acl::new(fits).unwrap();
        assert!(is_settable(&acl.with_mode(0o257).unwrap()));
        assert_eq!(Acl::new(does_not), Err(AclTooLong));
    }
}

#[test]
fn entries_that_a_directory_only_hands_on_do_not_affect_access_to_it() {
    let of_files = acl(&[Ace::allow(BOB, R | W).inherited_by(AceFlags::FILE_INHERIT)]);
    let below = of_files.inherited(true).unwrap();
    assert!(of_files.is_effective() && !below.is_effective());
    let made = Acl::of_mode_handing_on(0o755, &below).unwrap();
    assert_eq!(made.mode(), 0o755);
    assert!(allows(&bob(), &dir(0), Some(&made), R | X) && !made.is_trivial());
    assert_eq!(made.inherited(false).unwrap().aces(), [Ace::allow(BOB, R | W)], "files below get it");
}

#[test]
fn a_stored_acl_is_decoded_and_a_newer_or_damaged_one_is_refused() {
    let acl = acl(&[Ace::deny(BOB, W), Ace::allow(STAFF, R).inherited_by(AceFlags::FILE_INHERIT)]);
    let bytes = acl.encode();
    assert_eq!(Acl::decode(&bytes), Ok(acl));
    assert_eq!(Acl::decode(&[2, 0]), Err(AclEncodingError::Version(2)));
    assert_eq!(Acl::decode(&[]), Err(AclEncodingError::Damaged));
    for len in (2..bytes.len()).filter(|len| *len != 11) {
        assert_eq!(Acl::decode(&bytes[..len]), Err(AclEncodingError::Damaged), "{len} bytes");
    }
    let full = Acl::new(vec![Ace::allow(BOB, R); 2 * Acl::HANDED_ON_MAX]).unwrap();
    assert_eq!(full.encode().len(), 1 + 20 * Acl::HANDED_ON_MAX);
}

fn who() -> impl Strategy<Value = AceWho> {
    prop_oneof![
        Just(OWNER),
        Just(GROUP),
        Just(EVERYONE),
        (0..4_u32).prop_map(AceWho::User),
        (0..4_u32).prop_map(AceWho::NamedGroup)
    ]
}

fn any_acl() -> impl Strategy<Value = Acl> {
    let mask = prop_oneof![
        Just(0x1_u32),
        Just(0x6),
        Just(0x20),
        Just(0x27),
        Just(0x2),
        Just(0x4),
        0..=0x1f_07ff_u32
    ];
    let ace = (any::<bool>(), 0..16_u32, mask, who()).prop_map(|(allows, flags, mask, who)| Ace {
        kind: if allows { AceKind::Allow } else { AceKind::Deny },
        flags: AceFlags::from_bits(flags).unwrap(),
        mask: Access::from_bits(mask & 0x1f_07ff).unwrap(),
        who,
    });
    proptest::collection::vec(ace, 0..12).prop_map(|aces| Acl::new(aces).unwrap())
}

fn anybody() -> impl Strategy<Value = Identity> {
    (0..4_u32, 0..4_u32, proptest::collection::vec(0..4_u32, 0..3))
        .prop_map(|(uid, gid, groups)| Identity::new(uid, gid, &groups))
}

proptest! {
    #[test]
    fn an_acl_made_from_a_mode_gives_exactly_what_the_mode_gives(
        mode in 0..0o1000_u32, who in anybody(), uid in 0..4_u32, gid in 0..4_u32, is_directory: bool,
    ) {
        let mut of = file(mode, uid, gid);
        if is_directory {
            of.kind = FileKind::Directory;
        }
        let acl = Acl::of_mode(mode);
        let by_acl = granted(&who, &of, Some(&acl)).without(Access::SYNCHRONIZE);
        prop_assert_eq!(by_acl, granted(&who, &of, None).without(Access::SYNCHRONIZE));
        let removals = [None, Some(&acl)].map(|acl| judge_removal(&who, (&of, acl), (&file(0, 3, 3), None)));
        prop_assert_eq!(removals[0], removals[1]);
        let listed = [None, Some(&acl)].map(|acl| permission::may_remove_entries(&who, &of, acl));
        prop_assert_eq!(listed[0], listed[1]);
    }

    #[test]
    fn a_mode_comes_back_from_its_acl(mode in 0..0o1000_u32) {
        prop_assert_eq!(Acl::of_mode(mode).mode(), mode);
        prop_assert!(Acl::of_mode(mode).is_trivial());
    }

    #[test]
    fn after_chmod_the_acl_amounts_to_the_mode_and_names_no_one_beyond_the_group(
        acl in any_acl(), mode in 0..0o1000_u32, who in anybody(),
    ) {
        let after = acl.with_mode(mode).unwrap();
        prop_assert_eq!(after.mode(), mode);
        prop_assert_eq!(after.with_mode(mode).unwrap(), after.clone());
        let group = Access::of_mode_bits(mode >> 3);
        for ace in after.effective().filter(|ace| ace.kind == AceKind::Allow && !ace.who.is_special()) {
            prop_assert!(group.contains(ace.mask.within(Access::OF_MODE)));
        }
        // The owner has what his class has, whatever else fits him.
        let of = file(mode, who.uid, 3);
        if !who.is_root() {
            let has = granted(&who, &of, Some(&after)).within(Access::OF_MODE);
            prop_assert_eq!(has, Access::of_mode_bits(mode >> 6));
        }
    }

    /// Else it would grow with each.
    #[test]
    fn a_further_chmod_leaves_no_more_of_an_acl_than_the_first(
        acl in any_acl(), modes in proptest::collection::vec(0..0o1000_u32, 1..4),
    ) {
        let mut after = acl.clone();
        for mode in modes {
            let before = after.beside_mode(Access::OF_MODE).len();
            after = after.with_mode(mode).unwrap();
            let rest = after.beside_mode(Access::OF_MODE).len();
            prop_assert!(rest <= before && after.aces().len() <= rest + 6, "{:?}", after);
        }
    }

    #[test]
    fn any_acl_comes_back_from_its_encoding(acl in any_acl()) {
        prop_assert_eq!(Acl::decode(&acl.encode()), Ok(acl));
    }

    #[test]
    fn no_bytes_make_the_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Acl::decode(&bytes);
    }
}
