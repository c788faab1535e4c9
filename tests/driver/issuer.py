"""Issues tokens as an identity provider of the grid: keys, discovery document, signatures, and also what none would sign."""
import base64, hashlib, hmac, json, time

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from .peer import Peer

DISCOVERY, JWKS = "/.well-known/openid-configuration", "/jwks"
ANY_AUDIENCE = "https://wlcg.cern.ch/jwt/v1/any"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, length=None):
    return b64(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


class Issuer:
    """Serves its keys on loopback, where plain HTTP is believed."""

    def __init__(self, place):
        self.peer = Peer(place)
        self.url = self.peer.url("")
        self.keys = {"rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
                     "ec": ec.generate_private_key(ec.SECP256R1())}
        self.publish("rsa", "ec")

    def publish(self, *names):
        """These keys from now on."""
        discovery = {"issuer": self.url, "jwks_uri": self.peer.url(JWKS)}
        self.peer.documents = {DISCOVERY: json.dumps(discovery).encode(),
                               JWKS: json.dumps({"keys": [self.public(n) for n in names]}).encode()}

    def public(self, name):
        key = self.keys[name].public_key().public_numbers()
        if isinstance(key, rsa.RSAPublicNumbers):
            return {"kty": "RSA", "kid": name, "use": "sig", "alg": "RS256", "n": number(key.n), "e": number(key.e)}
        return {"kty": "EC", "kid": name, "use": "sig", "alg": "ES256", "crv": "P-256", "x": number(key.x, 32), "y": number(key.y, 32)}

    def pem(self, name):
        return self.keys[name].public_key().public_bytes(serialization.Encoding.PEM,
                                                         serialization.PublicFormat.SubjectPublicKeyInfo)

    def signature(self, name, signed, alg):
        if alg == "none":
            return b""
        if alg == "HS256":
            # The public key as the secret: what a verifier falls for that lets the token choose the algorithm.
            return hmac.new(self.pem(name), signed, hashlib.sha256).digest()
        key = self.keys[name]
        if alg == "RS256":
            return key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def token(self, scope=None, key="rsa", alg=None, kid=None, drop=(), **claims):
        """A WLCG token by default; `drop` leaves claims out."""
        alg, now = alg or {"rsa": "RS256", "ec": "ES256"}.get(key, "ES256"), int(time.time())
        body = {"iss": self.url, "sub": "anna", "aud": ANY_AUDIENCE, "wlcg.ver": "1.0", "iat": now, "nbf": now, "exp": now + 600,
                "jti": b64(hashlib.sha256(str(time.monotonic_ns()).encode()).digest()[:9])}
        if scope is not None:
            body["scope"] = scope
        body.update(claims)
        body = {k: v for k, v in body.items() if k not in drop}
        head = {"typ": "JWT", "alg": alg, "kid": kid or key}
        signed = (b64(json.dumps(head).encode()) + "." + b64(json.dumps(body).encode())).encode()
        return signed.decode() + "." + b64(self.signature(key, signed, alg))

    def scitoken(self, scope, **claims):
        return self.token(scope, drop=("wlcg.ver",), **{"ver": "scitoken:2.0", **claims})

    def config(self, *more, audiences=("https://se.example",)):
        """The table for a server's file; it must come last there."""
        lines = ["[[auth.issuers]]", 'url = "%s"' % self.url, "audiences = %s" % json.dumps(list(audiences)), "uid = 0",
                 "gid = 0"] + list(more)
        return "\n".join(lines) + "\n"

    def fetches(self):
        """How often the keys were asked for."""
        return len(self.peer.asked(JWKS))
