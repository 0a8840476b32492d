package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// A member is a file of an archive.
type member struct {
	name       string // in the archive
	executable bool
	content    []byte
}

func (m member) mode() os.FileMode {
	if m.executable {
		return 0o755
	}
	return 0o644
}

// archiveName is an archive's name without its ending, and the directory in it.
func (r *release) archiveName(p platform) string { return "rshub_" + r.number() + "_" + p.String() }

// makeArchives makes an archive of the programs for every platform.
func (r *release) makeArchives(context.Context) error {
	for _, p := range r.platforms {
		dir := r.archiveName(p)
		var members []member
		add := func(file string, executable bool) error {
			content, err := os.ReadFile(file)
			members = append(members, member{path.Join(dir, filepath.Base(file)), executable, content})
			return err
		}
		for _, name := range []string{"rshub", "rspublish", "rsmirror"} {
			if err := add(filepath.Join(r.work, p.String(), p.program(name)), true); err != nil {
				return err
			}
		}
		files := []string{"README.md", "CHANGELOG.md", "LICENSE", "SECURITY.md", "THIRD_PARTY.md"}
		if p.system == "linux" {
			files = append(files, "deploy/systemd/rshub.service", "deploy/systemd/rshub.env", "deploy/systemd/rsmirror@.service", "deploy/systemd/rspublish-watch@.service")
		}
		for _, file := range files {
			if err := add(filepath.Join(r.root, file), false); err != nil {
				return err
			}
		}
		documents, err := r.documents()
		if err != nil {
			return err
		}
		for _, name := range documents {
			content, err := os.ReadFile(filepath.Join(r.root, name))
			if err != nil {
				return err
			}
			members = append(members, member{name: path.Join(dir, name), content: content})
		}
		write, ending := r.writeTar, ".tar.gz"
		if p.system == "windows" {
			write, ending = r.writeZip, ".zip"
		}
		if err := writeFile(filepath.Join(r.dist, dir+ending), func(w io.Writer) error { return write(w, members) }); err != nil {
			return err
		}
	}
	return nil
}

// documented are the directories and files that the documentation consists of, or that
// it has operators take. They keep their places, so that links between them lead somewhere.
// Archives and packages have them.
var documented = []string{"docs", "deploy/proxy", "deploy/grafana", "deploy/helm/rshub/files/alerts.yaml"}

// documents returns the paths of these files in the repository.
func (r *release) documents() (paths []string, err error) {
	for _, place := range documented {
		err := fs.WalkDir(os.DirFS(r.root), place, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				paths = append(paths, name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func (r *release) writeTar(w io.Writer, members []member) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: tar.TypeReg, Mode: int64(m.mode()), Size: int64(len(m.content)), ModTime: r.when}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(m.content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func (r *release) writeZip(w io.Writer, members []member) error {
	z := zip.NewWriter(w)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: r.when}
		h.SetMode(m.mode())
		f, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(m.content); err != nil {
			return err
		}
	}
	return z.Close()
}

// writeFile makes a file of what write writes.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
