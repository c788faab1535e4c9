//! Steps of a random run.

use api::{SetAttributes, SetTime, SetXattr};
use proptest::prelude::*;
use testkit::namespace_suite::at;

use super::NAMES;

#[derive(Clone, Debug)]
pub enum Step {
    Create { dir: usize, name: usize, kind: u8, mode: u8, permissions: u32 },
    Lookup { dir: usize, name: usize },
    Unlink { dir: usize, name: usize, expected: u8 },
    Link { file: usize, dir: usize, name: usize },
    Rename { from: (usize, usize), to: (usize, usize), replace: u8, expected: (u8, u8) },
    Set { file: usize, set: SetAttributes },
    RecordWrite { file: usize, size: u64, is_stable: bool },
    CreateUnnamed { dir: usize, permissions: u32 },
    Publish { file: usize, dir: usize, name: usize, size: u64, replace: u8, is_summed: bool },
    SetProperties { file: usize, changes: Vec<(usize, Option<u8>)> },
    RecordChecksum { file: usize, is_late: bool, first: u8 },
    SetXattr { file: usize, name: usize, value: u8, how: SetXattr },
    RemoveXattr { file: usize, name: usize },
    Forget { file: usize },
    List { dir: usize },
    Place { file: usize, how: u8, pool: u32 },
    Look { file: usize },
    Reopen,
}

fn permissions() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(0o777_u32),
        2 => Just(0o1777),
        2 => Just(0o2775),
        2 => Just(0o755),
        1 => Just(0o6711),
        2 => 0_u32..0o10000,
    ]
}

fn set_attributes() -> impl Strategy<Value = SetAttributes> {
    let time = || {
        prop_oneof![
            3 => Just(None),
            1 => Just(Some(SetTime::Now)),
            1 => (0_i64..5000).prop_map(|seconds| Some(SetTime::To(at(seconds)))),
        ]
    };
    let id =
        |ids: &'static [u32]| prop_oneof![3 => Just(None), 1 => prop::sample::select(ids).prop_map(Some)];
    (
        prop::option::of(permissions()),
        id(&[0, 10, 20, 30]),
        id(&[100, 101, 200, 5]),
        prop_oneof![4 => Just(None), 1 => (0_u64..100).prop_map(Some)],
        time(),
        time(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(mode, uid, gid, size, atime, mtime, size_is_authorized, keeps_set_id)| {
            SetAttributes {
                acl: None,
                mode,
                uid,
                gid,
                size,
                atime,
                mtime,
                size_is_authorized,
                keeps_set_id,
                space_used: None,
            }
        })
}

/// Files and directories are named by their place among those ever made, so a step means something after shrinking.
pub fn step() -> impl Strategy<Value = Step> {
    let dir = || 0_usize..6;
    let name = || 0..NAMES.len();
    prop_oneof![
        8 => (dir(), name(), 0_u8..8, 0_u8..4, permissions())
            .prop_map(|(dir, name, kind, mode, permissions)| Step::Create { dir, name, kind, mode, permissions }),
        3 => (dir(), name()).prop_map(|(dir, name)| Step::Lookup { dir, name }),
        4 => (dir(), name(), 0_u8..8)
            .prop_map(|(dir, name, expected)| Step::Unlink { dir, name, expected }),
        2 => (0_usize..12, dir(), name()).prop_map(|(file, dir, name)| Step::Link { file, dir, name }),
        8 => ((dir(), name()), (dir(), name()), 0_u8..10, (0_u8..8, 0_u8..8))
            .prop_map(|(from, to, replace, expected)| Step::Rename { from, to, replace, expected }),
        4 => (0_usize..12, set_attributes()).prop_map(|(file, set)| Step::Set { file, set }),
        3 => (0_usize..12, 1_u64..200, any::<bool>())
            .prop_map(|(file, size, is_stable)| Step::RecordWrite { file, size, is_stable }),
        4 => (dir(), permissions()).prop_map(|(dir, permissions)| Step::CreateUnnamed { dir, permissions }),
        8 => (0_usize..5, dir(), name(), 0_u64..200, 0_u8..8, any::<bool>()).prop_map(
            |(file, dir, name, size, replace, is_summed)| Step::Publish { file, dir, name, size, replace, is_summed }
        ),
        3 => (0_usize..12, prop::collection::vec((name(), prop::option::of(any::<u8>())), 0..4))
            .prop_map(|(file, changes)| Step::SetProperties { file, changes }),
        3 => (0_usize..12, prop::bool::weighted(0.2), any::<u8>())
            .prop_map(|(file, is_late, first)| Step::RecordChecksum { file, is_late, first }),
        5 => (0_usize..12, name(), any::<u8>(), prop::sample::select(&[SetXattr::Either, SetXattr::Create, SetXattr::Replace][..]))
            .prop_map(|(file, name, value, how)| Step::SetXattr { file, name, value, how }),
        2 => (0_usize..12, name()).prop_map(|(file, name)| Step::RemoveXattr { file, name }),
        1 => (0_usize..12).prop_map(|file| Step::Forget { file }),
        2 => dir().prop_map(|dir| Step::List { dir }),
        3 => (0_usize..12, 0_u8..5, 1_u32..4).prop_map(|(file, how, pool)| Step::Place { file, how, pool }),
        3 => (0_usize..12).prop_map(|file| Step::Look { file }),
        1 => Just(Step::Reopen),
    ]
}
