"""Talks to a port of the box's loopback byte by byte: `python3 -c THIS JSON`, a list of conversations. Prints a JSON list of what came back."""
import json, socket, ssl, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

SECONDS = 8


def receive(it):
    """All until the other side ends or is silent for a while."""
    data = b""
    try:
        while len(data) < 65536:
            chunk = it.recv(65536)
            if not chunk:
                return data, "closed"
            data += chunk
            it.settimeout(1.5)
    except ssl.SSLError as error:
        return data, "tls " + error.reason
    except socket.timeout:
        return data, "open"
    except OSError:
        return data, "closed"
    return data, "open"


def pump(source, target):
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def relay(port):
    """The port of a relay that passes one connection on."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        client = listener.accept()[0]
        server = socket.create_connection(("127.0.0.1", port), SECONDS)
        for ends in [(client, server), (server, client)]:
            threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def converse(row):
    port = relay(row["port"]) if row.get("relayed") else row["port"]
    it = socket.create_connection(("127.0.0.1", port), SECONDS)
    try:
        for part in row["send"]:
            it.sendall(part.encode("latin1"))
            time.sleep(0.05)
        if "sni" not in row:
            data, end = receive(it)
            return {"data": data.decode("latin1"), "end": end}
        head = b""
        if row["send"]:
            while b"\r\n\r\n" not in head:
                chunk = it.recv(1)
                if not chunk:
                    return {"data": head.decode("latin1"), "end": "closed"}
                head += chunk
            if b" 200" not in head.split(b"\r\n")[0]:
                return {"data": head.decode("latin1"), "end": "refused"}
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        it = context.wrap_socket(it, server_hostname=row["sni"] or None)
        it.sendall(row.get("then", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").encode("latin1"))
        data, end = receive(it)
        return {"data": data.decode("latin1"), "end": end}
    except (OSError, ssl.SSLError) as error:
        return {"data": "", "end": "failed: %s" % type(error).__name__}
    finally:
        it.close()


with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(converse, json.loads(sys.argv[1])))))
