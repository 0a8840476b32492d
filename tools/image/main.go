// Command image builds the container image of rshub without a container engine,
// from the programs that tools/scripts/build builds. The same programs give the same image,
// byte for byte.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	root := flags.String("root", ".", "`directory` of the repository")
	programs := flags.String("programs", "", "`directory` with a subdirectory of programs for each platform, such as linux_amd64")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "comma-separated `list` of platforms")
	version := flags.String("version", "", "`version` of the programs")
	tag := flags.String("tag", "", "`tag` of the image "+localName+" in the file; default: the version")
	revision := flags.String("revision", "", "`commit` that the programs were built from")
	created := flags.String("created", "1970-01-01T00:00:00Z", "`time` of the commit, used for everything in the image")
	out := flags.String("o", "", "`file` to write, the tar of an OCI image layout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *programs == "" || *out == "" {
		return errors.New("-programs and -o are required; use -h for help")
	}
	when, err := time.Parse(time.RFC3339, *created)
	if err != nil {
		return fmt.Errorf("-created: %w", err)
	}
	when = when.UTC()
	c := newContents(*version, *revision, when.Format(time.RFC3339))
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for platform := range strings.SplitSeq(*platforms, ",") {
		system, architecture, _ := strings.Cut(platform, "/")
		image, err := newImage(c, *root, filepath.Join(*programs, system+"_"+architecture), system, architecture, when)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		index = addImage(index, image, system, architecture)
	}
	digest, err := writeImage(*out, annotate(index, c), cmp.Or(*tag, *version), when)
	if err != nil {
		return fmt.Errorf("write %s: %w", *out, err)
	}
	fmt.Println(digest)
	return nil
}
