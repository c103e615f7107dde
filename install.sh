#!/bin/sh
# Installs Cuddy from a tree that is built: no network, no compiler, no root unless the place asks
# for it.
#
#   cargo build --release
#   ./install.sh --prefix ~/.local
set -eu

usage() {
    cat <<'END'
usage: ./install.sh [--prefix DIR] [--libdir DIR] [--target DIR] [--uninstall]

  --prefix DIR   where to install (default: /usr/local)
  --libdir DIR   where libraries go, below the prefix (default: lib)
  --target DIR   where cargo put the release build (default: target/release beside this script)
  --uninstall    remove what an installation with the same options has put there

DESTDIR in the environment is put before every path, for packagers.
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/usr/local
libdir=lib
target=${CARGO_TARGET_DIR:-$here/target}/release
uninstall=no
while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --libdir | --target)
        [ $# -ge 2 ] || fail "$1 needs a folder"
        case $1 in
        --prefix) prefix=$2 ;;
        --libdir) libdir=$2 ;;
        --target) target=$2 ;;
        esac
        shift 2
        ;;
    --uninstall)
        uninstall=yes
        shift
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        fail "what is $1?"
        ;;
    esac
done

case $prefix in
/*) ;;
*) prefix=$(pwd)/$prefix ;;
esac
case $libdir in
/* | *..*) fail "--libdir is below the prefix: lib, lib64 or lib/x86_64-linux-gnu" ;;
esac

header=$here/include/cuddy.h
[ -f "$header" ] || fail "$header is missing: run this script in its own tree"
version=$(sed -n 's/^#define CUDDY_VERSION_STRING "\(.*\)"$/\1/p' "$header")
major=${version%%.*}
[ -n "$major" ] || fail "$header has no version"

root=${DESTDIR:-}$prefix
lib=$root/$libdir
man=$root/share/man/man1

if [ "$uninstall" = yes ]; then
    for header in "$here"/bindings/cpp/*.hpp; do
        rm -f "$root/include/${header##*/}"
    done
    rm -f "$root/include/cuddy.h" "$root/bin/cuddy" "$lib/libcuddy.so" "$lib/libcuddy.so.$major" \
        "$lib/libcuddy.so.$version" "$lib/libcuddy.a" "$lib/pkgconfig/cuddy.pc" \
        "$lib/pkgconfig/cuddy-static.pc" "$lib/cuddy/libsimcuda.so" "$lib/cuddy/libcuddy_preload.so" \
        "$root/include/simcuda.h" "$lib/cuddy/cudart/libcudart.so.12" "$lib/cuddy/cudart/libcudart.so.13" \
        "$lib/cmake/cuddy/cuddyConfig.cmake" "$lib/cmake/cuddy/cuddyConfigVersion.cmake" \
        "$man/cuddy.1" "$man"/cuddy-*.1
    # Folders of our own, and others if nothing else is in them.
    for folder in "$lib/cuddy/cudart" "$lib/cuddy" "$lib/cmake/cuddy" "$lib/cmake" "$lib/pkgconfig" "$lib" \
        "$root/include" "$root/bin" "$man" "$root/share/man" "$root/share"; do
        rmdir "$folder" 2>/dev/null || :
    done
    echo "removed Cuddy $version from $root"
    exit 0
fi

for file in libcuddy.so libcuddy.a libcuddy_preload.so libsimcuda.so cuddy; do
    [ -f "$target/$file" ] ||
        fail "$target/$file is missing: run cargo build --release first, or name the folder by --target"
done
# Cargo gives the soname only inside the repository (see build.rs); without it, programs that are
# linked against this library would not find the next version of it.
grep -aq "libcuddy\.so\.$major" "$target/libcuddy.so" ||
    fail "$target/libcuddy.so has no soname libcuddy.so.$major: run cargo inside the repository, or set CUDDY_SONAME=1"

# From the package files back up to the prefix, so that the whole tree can be moved.
up=$(echo "$libdir" | sed 's#/*$##; s#[^/][^/]*#..#g')

mkdir -p "$root/include" "$root/bin" "$man" "$lib/pkgconfig" "$lib/cmake/cuddy" "$lib/cuddy"
install -m 644 "$header" "$root/include/cuddy.h"
install -m 644 "$here"/bindings/cpp/*.hpp "$root/include"
install -m 755 "$target/libcuddy.so" "$lib/libcuddy.so.$version"
ln -sf "libcuddy.so.$version" "$lib/libcuddy.so.$major"
ln -sf "libcuddy.so.$major" "$lib/libcuddy.so"
install -m 644 "$target/libcuddy.a" "$lib/libcuddy.a"
# Its debug information is five times its code.
if command -v strip >/dev/null; then strip --strip-debug "$lib/libcuddy.a"; fi
install -m 755 "$target/cuddy" "$root/bin/cuddy"
"$target/cuddy" man "$man"
# Not where ldconfig looks: it answers to the name libcuddy.so too, and must be asked for.
install -m 755 "$target/libcuddy_preload.so" "$lib/cuddy/libcuddy_preload.so"
# Its name keeps it from being taken for a real driver; the command finds it here.
install -m 755 "$target/libsimcuda.so" "$lib/cuddy/libsimcuda.so"
install -m 644 "$here/tests/simcuda/include/simcuda.h" "$root/include/simcuda.h"
# The substitutes of the CUDA runtime, for `cuddy sim`. They too lie where no loader looks.
for runtime in libcudart.so.12 libcudart.so.13; do
    if [ -f "$target/cudart/$runtime" ]; then
        mkdir -p "$lib/cuddy/cudart"
        install -m 755 "$target/cudart/$runtime" "$lib/cuddy/cudart/$runtime"
    fi
done

# What rustc says that the static library needs (--print native-static-libs).
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl"

package() { # package NAME DESCRIPTION LIBS
    cat <<END
prefix=\${pcfiledir}/../$up
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: $1
Description: $2
Version: $version
License: MIT OR Apache-2.0
Cflags: -I\${includedir}
$3
END
}

# The second names the file, since -lcuddy means the shared library where both are.
package cuddy "A caching CUDA memory allocator" "Libs: -L\${libdir} -lcuddy
Libs.private: $private" >"$lib/pkgconfig/cuddy.pc"
package cuddy-static "A caching CUDA memory allocator, the static library" \
    "Libs: \${libdir}/libcuddy.a $private" >"$lib/pkgconfig/cuddy-static.pc"

cat >"$lib/cmake/cuddy/cuddyConfig.cmake" <<END
# find_package(cuddy) gives the targets cuddy::cuddy and cuddy::static.
get_filename_component(cuddy_PREFIX "\${CMAKE_CURRENT_LIST_DIR}/../../$up" ABSOLUTE)
if(NOT TARGET cuddy::cuddy)
  add_library(cuddy::cuddy SHARED IMPORTED)
  set_target_properties(cuddy::cuddy PROPERTIES
    IMPORTED_LOCATION "\${cuddy_PREFIX}/$libdir/libcuddy.so.$version"
    IMPORTED_SONAME "libcuddy.so.$major"
    INTERFACE_INCLUDE_DIRECTORIES "\${cuddy_PREFIX}/include")
  add_library(cuddy::static STATIC IMPORTED)
  set_target_properties(cuddy::static PROPERTIES
    IMPORTED_LOCATION "\${cuddy_PREFIX}/$libdir/libcuddy.a"
    INTERFACE_LINK_LIBRARIES "$private"
    INTERFACE_INCLUDE_DIRECTORIES "\${cuddy_PREFIX}/include")
endif()
END

cat >"$lib/cmake/cuddy/cuddyConfigVersion.cmake" <<END
# Versions of one soname only add to each other.
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION
   OR (PACKAGE_FIND_VERSION AND NOT PACKAGE_FIND_VERSION_MAJOR EQUAL $major))
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
END

echo "installed Cuddy $version in $root"
case $prefix in
/usr | /usr/local) ;;
*) echo "to use it: export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig LD_LIBRARY_PATH=$prefix/$libdir PATH=$prefix/bin:\$PATH" ;;
esac
