//! The admin's secret: made at the first start and shown once; only its hash is kept.

use sha2::{Digest, Sha256};
use store::Store;
use subtle::ConstantTimeEq;

const SETTING: &str = "admin_secret_sha256";

/// The hash of the secret. Cannot be shown.
#[derive(Clone)]
pub struct AdminSecret([u8; 32]);

impl std::fmt::Debug for AdminSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminSecret(…)")
    }
}

impl AdminSecret {
    /// A secret that was set by hand.
    pub fn given(secret: &str) -> Self {
        AdminSecret(hash(secret))
    }

    /// That of this database; a new one if it has none yet. That one is shown first and kept then: a server that dies in
    /// between makes another at its next start, and none is kept that nobody has seen, or that could not be shown. Told
    /// otherwise if another server was quicker.
    pub async fn of(
        store: &Store,
        show: impl FnOnce(&str) -> std::io::Result<()>,
        was_slower: impl FnOnce(),
    ) -> store::Result<Self> {
        if store.setting(SETTING).await?.is_none() {
            let new = hex::encode(rand::random::<[u8; 24]>());
            show(&new).map_err(|error| {
                store::Error::Invalid(format!(
                    "the admin's secret cannot be shown on standard output ({error}); set VODMILL_ADMIN_SECRET"
                ))
            })?;
            if store.set_once(SETTING, &hex::encode(hash(&new))).await? {
                return Ok(AdminSecret::given(&new));
            }
            was_slower();
        }
        let kept = store.setting(SETTING).await?.unwrap_or_default();
        let mut bytes = [0; 32];
        hex::decode_to_slice(&kept, &mut bytes)
            .map_err(|_| store::Error::Invalid("the kept hash of the admin's secret is damaged".into()))?;
        Ok(AdminSecret(bytes))
    }

    /// What sessions are bound to.
    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.0
    }

    /// Takes as long whether it is nearly right or not at all.
    pub fn is(&self, offered: &str) -> bool {
        self.0.ct_eq(&hash(offered)).into()
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
