"""Makes certificates as the grid has them: an authority, hosts, users, their proxies, revocation lists, VOMS attributes."""
import datetime, ipaddress, os, subprocess

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

PROXY_INFORMATION = ObjectIdentifier("1.3.6.1.5.5.7.1.14")
# SEQUENCE { SEQUENCE { OID } }: the right to everything that the user may do, and Globus' "limited".
INHERIT_ALL = bytes.fromhex("300c300a06082b06010505071501")
LIMITED = bytes.fromhex("300f300d060b2b060104019b5001010109")
DAY = datetime.timedelta(days=1)


def name(*values):
    kinds = {"DC": NameOID.DOMAIN_COMPONENT, "O": NameOID.ORGANIZATION_NAME, "CN": NameOID.COMMON_NAME}
    return x509.Name([x509.NameAttribute(kinds[k], v) for k, v in values])


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


class Holder:
    """A certificate, its key, and the chain that a client shows along with it."""

    def __init__(self, place, label, certificate, key, chain=()):
        self.certificate, self.key, self.chain = certificate, key, tuple(chain)
        self.cert_path, self.key_path = place.path(label + ".pem"), place.path(label + ".key")
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL,
                                   serialization.NoEncryption())
        write(self.cert_path, b"".join(pem(c) for c in (certificate,) + self.chain))
        write(self.key_path, secret, 0o600)
        # Certificate, key, chain: the order of a proxy file.
        self.proxy_path = place.path(label + ".proxy")
        write(self.proxy_path, pem(certificate) + secret + b"".join(pem(c) for c in self.chain), 0o600)

    @property
    def curl(self):
        return ["--cert", self.cert_path, "--key", self.key_path]


def write(path, data, mode=0o644):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)


class Authority:
    def __init__(self, place, label="ca"):
        self.place, self.label = place, label
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.subject = name(("DC", "example"), ("O", "Grid"), ("CN", label))
        self.certificate = self.build(self.subject, self.key, -DAY, 365 * DAY, [
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (key_usage(certificates=True), True)])
        self.path = place.path(label + ".pem")
        write(self.path, pem(self.certificate))

    def build(self, subject, key, begin, end, extensions, issuer=None, signer=None, serial=None):
        now = datetime.datetime.utcnow().replace(microsecond=0)
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer or self.subject)
                   .public_key(key.public_key()).serial_number(serial or x509.random_serial_number())
                   .not_valid_before(now + begin).not_valid_after(now + end))
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        # voms-proxy-fake refers to its signer by this.
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return builder.sign(signer or self.key, hashes.SHA256())

    def host(self, label, names=("localhost",), addresses=("127.0.0.1",), curve=True):
        key = (ec.generate_private_key(ec.SECP256R1()) if curve
               else rsa.generate_private_key(public_exponent=65537, key_size=2048))
        others = [x509.DNSName(n) for n in names] + [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
        certificate = self.build(name(("O", "Grid"), ("CN", label)), key, -DAY, 30 * DAY, [
            (x509.BasicConstraints(ca=False, path_length=None), True), (key_usage(), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False),
            (x509.SubjectAlternativeName(others), False)])
        return Holder(self.place, label, certificate, key)

    def user(self, label, begin=-DAY, end=30 * DAY):
        """Its name as OpenSSL writes it: /DC=example/O=Grid/CN=<label>."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        certificate = self.build(name(("DC", "example"), ("O", "Grid"), ("CN", label)), key, begin, end, [
            (x509.BasicConstraints(ca=False, path_length=None), True), (key_usage(), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)])
        return Holder(self.place, label.replace(" ", "_"), certificate, key)

    def proxy(self, owner, label, policy=INHERIT_ALL, end=DAY / 2):
        """Of a user, or of another proxy."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        serial = x509.random_serial_number()
        subject = x509.Name(list(owner.certificate.subject) + [x509.NameAttribute(NameOID.COMMON_NAME, str(serial))])
        certificate = self.build(subject, key, -DAY / 24, end, [
            (key_usage(), True), (x509.UnrecognizedExtension(PROXY_INFORMATION, policy), True)],
            issuer=owner.certificate.subject, signer=owner.key, serial=serial)
        return Holder(self.place, label, certificate, key, (owner.certificate,) + owner.chain)

    def revokes(self, *holders):
        """A list as PEM."""
        now = datetime.datetime.utcnow().replace(microsecond=0)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.subject).last_update(now - DAY).next_update(now + DAY)
        for holder in holders:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(holder.certificate.serial_number).revocation_date(now - DAY / 2)
                .build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def directory(self, revoked=()):
        """As /etc/grid-security/certificates: the authority and its revocation list under the hash of its name."""
        top = self.place.path(self.label + ".certificates")
        os.makedirs(top, exist_ok=True)
        short = subprocess.run(["openssl", "x509", "-noout", "-hash", "-in", self.path], stdout=subprocess.PIPE, text=True,
                               check=True).stdout.strip()
        write(os.path.join(top, short + ".0"), pem(self.certificate))
        write(os.path.join(top, short + ".r0"), self.revokes(*revoked))
        return top


def key_usage(certificates=False):
    return x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=not certificates,
                         data_encipherment=False, key_agreement=False, key_cert_sign=certificates, crl_sign=certificates,
                         encipher_only=False, decipher_only=False)
