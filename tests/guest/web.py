"""One connection to the HTTP door, from a guest: what takes curl a process each time takes this a round trip."""
import base64, http.client, os, ssl, sys, urllib.parse

WHERE = urllib.parse.urlsplit(os.environ["HTTP"])
LOGIN = {"Authorization": "Basic " + base64.b64encode(os.environ["HTTP_LOGIN"].encode()).decode()}
MNT = "/mnt/nfs"


class Door:
    def __init__(self):
        context = ssl.create_default_context(cafile=os.environ["HTTP_CA"])
        self.connection = http.client.HTTPSConnection(WHERE.hostname, WHERE.port, context=context, timeout=60)

    def ask(self, method, name, body=None, headers=(), want=(200,)):
        """`name` is relative to the directory on the mount in which the case runs."""
        path = os.path.join(os.getcwd().removeprefix(MNT), name)
        self.connection.request(method, path, body, dict(LOGIN, **dict(headers)))
        response = self.connection.getresponse()
        answer = response.read()
        assert response.status in want, "%s %s: %d %.200r" % (method, path, response.status, answer)
        return answer

    def get(self, name):
        return self.ask("GET", name)

    def put(self, name, body):
        self.ask("PUT", name, body, want=(201, 204))


if __name__ == "__main__":       # web.py put NAME FILE...: one after the other to one name
    door = Door()
    for file in sys.argv[3:]:
        with open(file, "rb") as f:
            door.put(sys.argv[2], f.read())
