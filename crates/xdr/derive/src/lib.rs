//! derive(Xdr) for structs, enums and unions.
