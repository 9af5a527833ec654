"""Repositories that Xtreme builds with, none of them downloaded.

A workspace that depends on @xtreme calls xtreme_dependencies() in its own WORKSPACE. All libraries
are Debian packages, reached as @system//:NAME; Bazel's own rule sets are Debian's bazel-* packages.
"""

def _bundled_repository_impl(ctx):
    for label, path in ctx.attr.files.items():
        ctx.symlink(label, path)
    for path, name in ctx.attr.directories.items():
        ctx.symlink(path, name)
    ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)

# A repository made of files that stand in this one, and of directories of the system.
_bundled_repository = repository_rule(
    implementation = _bundled_repository_impl,
    attrs = {
        "directories": attr.string_dict(),
        "files": attr.label_keyed_string_dict(allow_files = True),
    },
    local = True,
)

_DEBIAN = {
    "bazel_skylib": "/usr/share/bazel/tools/skylib",
    "platforms": "/usr/share/bazel/tools/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def xtreme_dependencies():
    """Declares @rules_cc, @remote_coverage_tools, Debian's rule sets and @system."""
    _bundled_repository(
        name = "rules_cc",
        files = {
            "@xtreme//tools/bazel/rules_cc:BUILD.root": "BUILD",
            "@xtreme//tools/bazel/rules_cc:BUILD.cc": "cc/BUILD",
            "@xtreme//tools/bazel/rules_cc:defs.bzl": "cc/defs.bzl",
        },
    )
    _bundled_repository(
        name = "remote_coverage_tools",
        files = {"@xtreme//tools/bazel/coverage:BUILD.root": "BUILD"},
    )
    for name, path in _DEBIAN.items():
        native.local_repository(name = name, path = path)
    _bundled_repository(
        name = "system",
        # Debian keeps libnl's headers off the compiler's own path.
        directories = {"/usr/include/libnl3": "libnl3"},
        files = {"@xtreme//tools/bazel/system:BUILD.system": "BUILD"},
    )
