//! Ids, name suffixes and jitter from one seed. Each depends on the seed and
//! on what it is for, never on the order in which things happen.

/// The world's seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    /// Chance for one purpose.
    pub(crate) fn generator(self, purpose: &str) -> fastrand::Rng {
        // FNV-1a: the same in every release, unlike the standard hasher.
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        fastrand::Rng::with_seed(self.0 ^ hash)
    }

    /// An id in the form of a UUID.
    pub(crate) fn uuid(self, purpose: &str) -> String {
        let bits = self.generator(purpose).u128(..);
        let hex = format!("{bits:032x}");
        format!(
            "{}-{}-4{}-a{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[13..16],
            &hex[17..20],
            &hex[20..]
        )
    }

    /// The end of a name that a controller makes up.
    pub(crate) fn suffix(self, purpose: &str) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut generator = self.generator(purpose);
        (0..5)
            .map(|_| char::from(LETTERS[generator.usize(..LETTERS.len())]))
            .collect()
    }

    /// `seconds`, give or take a twentieth.
    pub(crate) fn jitter(self, purpose: &str, seconds: u32) -> u32 {
        let spread = seconds / 20;
        seconds - spread + self.generator(purpose).u32(0..=2 * spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_purpose_give_the_same_id_each_time() {
        assert_eq!(Seed(1).uuid("pod a"), Seed(1).uuid("pod a"));
        assert_ne!(Seed(1).uuid("pod a"), Seed(2).uuid("pod a"));
        assert_ne!(Seed(1).uuid("pod a"), Seed(1).uuid("pod b"));
        assert_eq!(Seed(1).uuid("pod a").len(), 36);
    }

    #[test]
    fn jitter_stays_within_a_twentieth() {
        for seed in 0..200 {
            assert!((95..=105).contains(&Seed(seed).jitter("x", 100)));
            assert_eq!(Seed(seed).jitter("x", 7), 7);
        }
    }
}
