package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// newImage builds the image of one platform from the programs in the directory out. root is the
// repository.
func newImage(c *contents, root, out, system, architecture string, when time.Time) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, f := range c.files {
		content, err := layer(f, root, out, when)
		if err != nil {
			return nil, fmt.Errorf("add %s: %w", f.to, err)
		}
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: l, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: when}, CreatedBy: "COPY " + f.to},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Config = system, architecture, v1.Time{Time: when}, c.config
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, c.config.Labels).(v1.Image), nil
}

// layer returns the compressed tar of one file: a program, which is executable by all users, a file
// of the repository, or an empty directory, which only its owner can access.
func layer(f file, root, out string, when time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	h := &tar.Header{
		Name: f.to, Typeflag: tar.TypeReg, Mode: f.mode, ModTime: when, Format: tar.FormatPAX,
	}
	var content []byte
	if f.from == "" {
		h.Name, h.Typeflag, h.Uid, h.Gid = h.Name+"/", tar.TypeDir, user, user
	} else {
		dir := out
		if f.kept {
			dir = root
		}
		var err error
		if content, err = os.ReadFile(filepath.Join(dir, f.from)); err != nil {
			return nil, err
		}
		h.Size = int64(len(content))
	}
	if err := w.WriteHeader(h); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err := errors.Join(w.Close(), z.Close())
	return b.Bytes(), err
}

func addImage(index v1.ImageIndex, image v1.Image, system, architecture string) v1.ImageIndex {
	return mutate.AppendManifests(index, mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: architecture}},
	})
}

// annotate adds the labels of the images to the index.
func annotate(index v1.ImageIndex, c *contents) v1.ImageIndex {
	return mutate.Annotations(index, c.config.Labels).(v1.ImageIndex)
}

// localName is the name of the image where its file is loaded: kind, minikube and containerd read
// it from the file. localhost is not a registry.
const localName = "localhost/rshub"

// writeImage writes an OCI image layout as a tar, verifies it, and returns the digest of the index
// of all platforms. If tag is empty, the image has no name.
func writeImage(file string, index v1.ImageIndex, tag string, when time.Time) (digest v1.Hash, err error) {
	dir, err := os.MkdirTemp("", "rshub-image-")
	if err != nil {
		return digest, err
	}
	defer os.RemoveAll(dir)
	root, err := layout.Write(dir, empty.Index)
	if err != nil {
		return digest, err
	}
	var options []layout.Option
	if tag != "" {
		options = append(options, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": localName + ":" + tag}))
	}
	if err := root.AppendIndex(index, options...); err != nil {
		return digest, err
	}
	written, err := root.ImageIndex()
	if err != nil {
		return digest, err
	}
	if err := validate.Index(written); err != nil {
		return digest, err
	}
	if err := pack(file, dir, when); err != nil {
		return digest, err
	}
	return index.Digest()
}

// pack writes the files of a directory to a tar, ordered by name.
func pack(file, dir string, when time.Time) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(name), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: when, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
