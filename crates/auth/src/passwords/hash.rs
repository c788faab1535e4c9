//! scrypt (RFC 7914) in the string form of password hashes, `$scrypt$ln=15,r=8,p=1$salt$hash`.

use scrypt::password_hash::phc::PasswordHash;
use scrypt::password_hash::{CustomizedPasswordHasher, PasswordVerifier};
use scrypt::{Params, Scrypt};

/// The cost of one check; written into each hash, so it can be raised for new ones.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub log_n: u8,
    pub r: u32,
    pub p: u32,
}

impl Default for Cost {
    /// 32 MiB and some 60 ms.
    fn default() -> Cost {
        Cost { log_n: 15, r: 8, p: 1 }
    }
}

impl Cost {
    #[cfg(test)]
    pub const TEST: Cost = Cost { log_n: 4, r: 8, p: 1 };
}

/// Above these a line of the file could take the machine's memory with each request.
const LOG_N_MAX: u8 = 18;
const R_MAX: u32 = 16;
const P_MAX: u32 = 16;

pub fn hash(password: &str, cost: Cost) -> Result<String, String> {
    let mut salt = [0; 16];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| "the system gives no random numbers".to_owned())?;
    let fail = |error: &dyn std::fmt::Display| format!("cannot hash the password: {error}");
    let params = Params::new(cost.log_n, cost.r, cost.p).map_err(|error| fail(&error))?;
    let hash = Scrypt::new()
        .hash_password_customized(password.as_bytes(), &salt, None, None, params)
        .map_err(|error| fail(&error))?;
    Ok(hash.to_string())
}

/// A hash that no password has, at the cost of one that some password has.
pub fn nobody(cost: Cost) -> String {
    let Cost { log_n, r, p } = cost;
    format!("$scrypt$ln={log_n},r={r},p={p}$bm9ib2R5bm9ib2R5bm8${}", "A".repeat(43))
}

/// Whether [`verify`] can make sense of it, at a bearable cost.
pub fn check(text: &str) -> Result<(), String> {
    let hash = PasswordHash::new(text).map_err(|error| format!("the hash makes no sense: {error}"))?;
    if hash.algorithm.as_str() != "scrypt" || hash.hash.is_none() || hash.salt.is_none() {
        return Err("the hash is not `$scrypt$ln=…,r=…,p=…$salt$hash`".to_owned());
    }
    let params = Params::try_from(&hash).map_err(|error| format!("the hash makes no sense: {error}"))?;
    if params.log_n() > LOG_N_MAX || params.r() > R_MAX || params.p() > P_MAX {
        return Err(format!("the hash costs more than ln={LOG_N_MAX},r={R_MAX},p={P_MAX}"));
    }
    Ok(())
}

/// Compares in constant time. Takes its cost in CPU: not for an async thread.
pub fn verify(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash)
        .is_ok_and(|hash| Scrypt::new().verify_password(password.as_bytes(), &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_verifies_its_password_only_and_has_its_own_salt() {
        let hash = super::hash("right", Cost::TEST).unwrap();
        assert!(verify("right", &hash) && !verify("wrong", &hash) && !verify("", &hash));
        assert_ne!(hash, super::hash("right", Cost::TEST).unwrap());
        assert_eq!(check(&hash), Ok(()));
    }

    #[test]
    fn a_hash_of_another_program_verifies() {
        // Python: hashlib.scrypt(b"pleaseletmein", salt=b"SodiumChloride!!", n=16, r=8, p=1, dklen=32)
        let hash = "$scrypt$ln=4,r=8,p=1$U29kaXVtQ2hsb3JpZGUhIQ$tFm7I7Z7WV7ogdxUgXpuGIy6C9svNTyuUrrSmDrRYGE";
        assert!(verify("pleaseletmein", hash));
    }

    #[test]
    fn nobody_has_a_password() {
        let nobody = nobody(Cost::TEST);
        assert_eq!(check(&nobody), Ok(()));
        assert!(!verify("", &nobody));
    }

    #[test]
    fn a_hash_that_would_take_the_machine_is_refused() {
        for bad in ["ln=30,r=8,p=1", "ln=15,r=1000,p=1", "ln=15,r=8,p=1000"] {
            assert!(
                check(&format!("$scrypt${bad}$bm9ib2R5bm9ib2R5bm8${}", "A".repeat(43))).is_err(),
                "{bad}"
            );
        }
        for bad in ["", "secret", "$2b$12$abcdefghijklmnopqrstuv", "$scrypt$ln=4,r=8,p=1"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        let salted = |salt: &str| check(&format!("$scrypt$ln=4,r=8,p=1${salt}${}", "A".repeat(43)));
        assert!(salted("bm9ib2R5").is_err(), "a salt of 6 bytes");
        assert_eq!(salted("bm9ib2R5bm8"), Ok(()), "a salt of 8 bytes");
    }
}
