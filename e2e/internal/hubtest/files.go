package hubtest

import (
	"io/fs"
	"os"
)

// EachFile calls do with each mirrored file of a directory of rsmirror, in order of their names.
// It returns the first error.
func EachFile(dir string, do func(name string, content []byte) error) error {
	files := os.DirFS(dir)
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if name == ".rsmirror" {
				return fs.SkipDir
			}
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return do(name, content)
	})
}
