"""The client's side of a context, by MIT's library: one command a line, one answer a line, bytes in hexadecimal."""

import sys

import gssapi

FLAGS = gssapi.RequirementFlag


def main():
    name = gssapi.Name(sys.argv[1], gssapi.NameType.hostbased_service)
    flags = FLAGS.integrity | FLAGS.confidentiality
    if sys.argv[2] == "mutual":
        flags |= FLAGS.mutual_authentication
    context = gssapi.SecurityContext(name=name, usage="initiate", flags=flags, mech=gssapi.MechType.kerberos)
    print(context.step().hex(), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        given = [bytes.fromhex(argument) for argument in arguments]
        if command == "finish":
            context.step(*given)
            answer = b""
        elif command == "mic":
            answer = context.get_signature(*given)
        elif command == "verify":
            context.verify_signature(*given)
            answer = b""
        elif command == "seal":
            answer = context.wrap(*given, True).message
        elif command == "wrap":
            answer = context.wrap(*given, False).message
        elif command == "unwrap":
            answer = context.unwrap(*given).message
        print("= " + answer.hex(), flush=True)


main()
