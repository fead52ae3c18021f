//! Who is believed over TLS, with certificates made for the test.

use std::sync::Arc;

use quell_fetch::{Allow, Call, CallError, Guard, Http, HttpSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::names::Names;

/// An authority, and a client that believes it and finds `shop.example` on this machine.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn client(&self) -> Http {
        let settings = HttpSettings { authorities: vec![self.0.der().clone()], ..HttpSettings::default() };
        let names = Names::of("shop.example", &[&["127.0.0.1"]]);
        let guard = Guard::new(Allow::parse(["127.0.0.0/8"]).unwrap());
        Http::with_names(guard, &settings, names).unwrap()
    }

    fn certificate(&self, params: CertificateParams) -> (CertificateDer<'static>, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().der().clone(), key)
    }
}

fn for_name(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

/// Serves one answer per connection over HTTP/1.1; the port.
async fn serve((certificate, key): (CertificateDer<'static>, KeyPair)) -> u16 {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not believe us closes in the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsafe").await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

#[tokio::test]
async fn only_a_certificate_of_a_known_authority_for_this_name_and_time_is_believed() {
    let ours = Authority::new("ours");
    let get = async |port: u16| ours.client().call(Call::get(format!("https://shop.example:{port}/"))).await;

    let good = serve(ours.certificate(for_name("shop.example"))).await;
    assert_eq!(get(good).await.unwrap().body, b"safe");

    let mut expired = for_name("shop.example");
    (expired.not_before, expired.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let cases = [
        ("UnknownIssuer", Authority::new("other").certificate(for_name("shop.example"))),
        ("BadSignature", Authority::new("ours").certificate(for_name("shop.example"))),
        ("not valid for", ours.certificate(for_name("other.example"))),
        ("expired", ours.certificate(expired)),
    ];
    for (why, certificate) in cases {
        let port = serve(certificate).await;
        match get(port).await {
            Err(CallError::Connect(text)) => assert!(text.contains(why), "{why}: {text}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}
