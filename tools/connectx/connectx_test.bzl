"""connectx_test: a test on software ConnectX devices, without a card, root or hugepages."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def _settings(mtu, personality, without, faults, seed):
    settings = {}
    if mtu:
        settings["MTU"] = str(mtu)
    if personality:
        settings["PERSONALITY"] = personality
    if without:
        settings["WITHOUT"] = ",".join(without)
    if seed != None:
        settings["SEED"] = str(seed)
    for name, value in faults.items():
        settings[name.upper()] = str(value)
    return settings

def _check_devices(devices):
    """Fails where an entry is neither an interface with its address nor the device at its place."""
    for number, device in enumerate(devices):
        wanted = "mlx5_%d" % number
        if "=" not in device and device != wanted:
            fail("connectx_test: device %r: %r is wanted there, or \"eth2=10.0.0.1/24\"" %
                 (device, wanted))

def _binary_devices(devices, host):
    """What run_binary and the launcher are told of a binary's devices."""
    interfaces = [device.split("=")[0] for device in devices if "=" in device]
    if interfaces:
        if len(interfaces) != len(devices):
            fail("connectx_test: of a binary's devices all are on interfaces, or none")
        return ["--device=" + device for device in devices], {"INTERFACE": ",".join(interfaces)}
    if host != None:
        fail("connectx_test: host: a binary's host is at the other end of an interface: " +
             "devices = [\"eth2=10.0.0.1/24+10.0.0.9/24\"]")
    return [], {"DEVICES": str(max(2, len(devices)))}

def connectx_test(
        name,
        srcs = None,
        binary = None,
        devices = ["mlx5_0"],
        mtu = None,
        personality = None,
        without = [],
        faults = {},
        seed = None,
        clock = "real",
        host = None,
        host_args = [],
        preload = [],
        deps = [],
        args = [],
        data = [],
        env = {},
        **kwargs):
    """A GoogleTest or a program on software ConnectX devices, in a network of its own.

    The network has its loopback interface, which is up, and the interfaces named in `devices`.
    Tests that run at the same time do not meet, and none reaches the machine's network.

    Args:
      name: of the test.
      srcs: a GoogleTest's sources. It makes a xtreme::connectx::TestBed
        (tools/connectx/testing/test_bed.h), which has the devices named here.
      binary: in place of srcs, any program that uses libibverbs, a script that starts some, or with
        `preload` one that uses sockets; it passes when it exits with 0.
      devices: one entry each, the first mlx5_0: "mlx5_0" for verbs alone, "eth2=10.0.0.1/24" for
        one that is the port of an interface with that address, "eth2=10.0.0.1/24+10.0.0.9/24" for
        one with a Linux host of the second address at the other end, for TCP:
        TestBed::HostSocket, or `host`.
        A binary has either some that are ports of interfaces, as rings need it, eight at most, or
        those for verbs alone: "mlx5_0", "mlx5_1" and so on, in order, on one cable, two at least.
        Its host has the other ends of all its interfaces; groups go by the first.
      mtu: of the devices and their interfaces, the hosts' included (1500).
      personality: "cx4lx", "cx5", "cx6dx", "cx7" or "vf".
      without: capabilities to take away; tools/connectx/run --help names them.
      faults: rates and times: {"loss": "0.01", "delay_us": "50"}.
      seed: decides which frames the faults hit.
      clock: "real", or "virtual": then nothing happens but in TestBed::Pump. Not for a binary.
      host: of a binary: a program that runs on the Linux host at the other ends meanwhile, on the
        kernel's sockets. If it fails, the test does; it is killed when the binary has ended.
      host_args: its arguments, one each: what has a space in it stands in quotes of the shell's,
        "'a b'", for Bazel splits them as it does args.
      preload: of a binary: libraries, as "@xtreme//api:libxtreme.so", by which its sockets are on
        rings.
      deps: of srcs.
      args: of the test or the program.
      data: as of any test.
      env: as of any test.
      **kwargs: as of any test.
    """
    if (srcs == None) == (binary == None):
        fail("connectx_test: either srcs or binary")
    if clock not in ("real", "virtual"):
        fail("connectx_test: clock is \"real\" or \"virtual\"")
    _check_devices(devices)
    settings = _settings(mtu, personality, without, faults, seed)
    if srcs != None and (host != None or host_args or preload):
        fail("connectx_test: host, host_args and preload are for a binary")
    if srcs != None:
        variables = {"XTREME_CONNECTX_" + key: value for key, value in settings.items()}
        variables["XTREME_TEST_BED_DEVICES"] = ",".join(devices)
        variables["XTREME_TEST_BED_CLOCK"] = clock
        variables.update(env)
        cc_test(
            name = name,
            srcs = srcs,
            args = args,
            data = data,
            env = variables,
            deps = deps + [Label("//tools/connectx/testing:main")],
            **kwargs
        )
        return
    if clock == "virtual":
        fail("connectx_test: a program that knows of no test bed has nobody to pump its devices")
    started, of_devices = _binary_devices(devices, host)
    settings.update(of_devices)
    if "INTERFACE" in settings and "MTU" in settings:
        started.append("--mtu=" + settings.pop("MTU"))
    launch = Label("//tools/connectx/preload:launch")
    run_binary = Label("//tools/connectx/testing:run_binary")
    started += ["--preload=$(rootpath %s)" % library for library in preload]
    if host != None:
        started.append("--host=$(rootpath %s)" % host)
        started += ["--host-arg=" + argument for argument in host_args]
    files = data + preload + [binary] + ([host] if host != None else [])
    options = ["--%s=%s" % (key.lower().replace("_", "-"), settings[key]) for key in settings]
    native.sh_test(
        name = name,
        srcs = [Label("//tools/connectx/testing:run_binary.sh")],
        args = ["$(rootpath %s)" % run_binary] + started +
               ["--", "$(rootpath %s)" % launch] + options +
               ["--", "$(rootpath %s)" % binary] + args,
        data = {label: None for label in files}.keys() + [run_binary, launch],
        env = env,
        **kwargs
    )
