//! Which files are too small for a layout: their bytes go through the head (RFC 8881 §5.12.4).
//!
//! A layout costs LAYOUTCOMMIT and LAYOUTRETURN, beside the OPEN, WRITE and CLOSE that a small file needs. A client that
//! knows the attribute asks for none while the file is smaller; one that asks nevertheless gets it.

use nfs4::{Bitmap4, LayoutType4, MdsThreshold4, TH4_READ_SIZE, TH4_WRITE_SIZE, ThresholdItem4};
use types::{Attributes, FileKind};
use xdr::{Opaque, to_bytes};

use super::offers::Offers;

pub(super) fn is_below(offers: Offers, file: &Attributes) -> bool {
    file.size < offers.layout_bytes_min
}

pub(super) fn hints(offers: Offers, file: &Attributes) -> MdsThreshold4 {
    if file.kind != FileKind::Regular || offers.layout_bytes_min == 0 {
        return MdsThreshold4::default();
    }
    // One length for each hint, in the order of their bits: to read and to write.
    let lengths = (offers.layout_bytes_min, offers.layout_bytes_min);
    let item = ThresholdItem4 {
        layout_type: LayoutType4::FLEX_FILES,
        hintset: Bitmap4::of(&[TH4_READ_SIZE, TH4_WRITE_SIZE]),
        hintlist: Opaque(to_bytes(&lengths)),
    };
    MdsThreshold4 { hints: vec![item] }
}
