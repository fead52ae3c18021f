//! TLS by rustls: no system library decides what is accepted.

use std::sync::Arc;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::options::{Options, Tls};

/// How connections are encrypted, if at all.
pub(crate) fn connector(options: &Options) -> StoreResult<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| StoreError::new(ErrorKind::Invalid, format!("TLS cannot be set up: {e}")))?;
    let config = match options.tls {
        Tls::VerifyFull => builder.with_root_certificates(roots(options)?).with_no_client_auth(),
        Tls::Disable | Tls::Prefer | Tls::Require => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// The certificates by which a server is believed: a file, or those of the system.
fn roots(options: &Options) -> StoreResult<RootCertStore> {
    let refused = |why: String| StoreError::new(ErrorKind::Invalid, why);
    let mut store = RootCertStore::empty();
    let certificates: Vec<CertificateDer<'static>> = match &options.root_certificates {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|e| refused(format!("sslrootcert={} cannot be read: {e}", path.display())))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(refused(
            "sslmode=verify-full needs certificates to trust, and none were found; install the system's, or name a PEM \
             file with sslrootcert="
                .to_owned(),
        ));
    }
    Ok(store)
}

/// Encryption without asking who is there, as `prefer` and `require` mean it for PostgreSQL everywhere. The signature of
/// the handshake is still checked.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
