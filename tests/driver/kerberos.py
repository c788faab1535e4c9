"""A Kerberos realm that lives for one group: its database and keytabs are made here, its KDC runs in the guest."""
import os, subprocess

REALM, SERVER_HOST, CLIENT_HOST = "FOREBAY.TEST", "head.forebay.test", "client.forebay.test"
ENCTYPES = "aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal"
# Users that every Debian has, and one that no system has.
USERS = ("backup", "games", "stranger")

CLIENT_CONF = """[libdefaults]
 default_realm = %s
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
[realms]
 %s = {
  kdc = 127.0.0.1
 }
[domain_realm]
 .forebay.test = %s
""" % (REALM, REALM, REALM)

KDC_CONF = """[kdcdefaults]
 kdc_listen = 127.0.0.1
 kdc_tcp_listen = 127.0.0.1
[realms]
 %s = {
  database_name = {dir}/principal
  key_stash_file = {dir}/stash
  acl_file = {dir}/acl
  supported_enctypes = %s
 }
""" % (REALM, ENCTYPES)


def realm(server):
    """{scratch}/krb5: krb5.conf, kdc.conf and the database for the guest's KDC, keytabs of server and client."""
    top = os.path.join(server.scratch, "krb5")
    os.makedirs(top)
    for name, text in (("krb5.conf", CLIENT_CONF), ("kdc.conf", KDC_CONF.replace("{dir}", top))):
        with open(os.path.join(top, name), "w") as f:
            f.write(text)
    env = dict(os.environ, KRB5_CONFIG=os.path.join(top, "krb5.conf"), KRB5_KDC_PROFILE=os.path.join(top, "kdc.conf"))

    def admin(*argv):
        subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    admin("/usr/sbin/kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    for user in USERS:
        admin("/usr/sbin/kadmin.local", "-r", REALM, "addprinc", "-pw", "secret", user)
    for service, keytab in (("nfs/" + SERVER_HOST, "server.keytab"), ("host/" + CLIENT_HOST, "client.keytab")):
        admin("/usr/sbin/kadmin.local", "-r", REALM, "addprinc", "-randkey", service)
        admin("/usr/sbin/kadmin.local", "-r", REALM, "ktadd", "-k", os.path.join(top, keytab), service)
