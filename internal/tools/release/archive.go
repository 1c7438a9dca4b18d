package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive or a package, by its path with slashes.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

func byName(a, b file) int { return cmp.Compare(a.name, b.name) }

// archive writes the archive of a target: one folder with the program and its texts.
func (r release) archive(t target, binary []byte, texts []file) error {
	files := []file{{t.executable(), 0o755, binary}}
	for _, f := range texts {
		if t.os != "windows" || !strings.HasPrefix(f.name, "man/") {
			files = append(files, f)
		}
	}
	folder := fmt.Sprintf("dlxctl_%s_%s_%s/", r.version, t.os, t.arch)
	for i := range files {
		files[i].name = folder + files[i].name
	}
	slices.SortFunc(files, byName)
	suffix, write := ".tar.gz", tarball
	if t.os == "windows" {
		suffix, write = ".zip", zipped
	}
	var b bytes.Buffer
	if err := write(&b, files, r.date); err != nil {
		return err
	}
	return os.WriteFile(r.name(t, suffix), b.Bytes(), 0o644)
}

// tarball writes the files as a tar.gz, all with the same time and owner.
func tarball(w io.Writer, files []file, at time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := tarred(compressed, files, at); err != nil {
		return err
	}
	return compressed.Close()
}

// tarred writes the files as a tar, all with the same time and owner. A name that ends in a slash
// is that of a folder.
func tarred(w io.Writer, files []file, at time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(f.name, "/") {
			kind = tar.TypeDir
		}
		err := archive.WriteHeader(&tar.Header{
			Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: at,
			Typeflag: kind, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		})
		if err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// zipped writes the files as a zip, all with the same time.
func zipped(w io.Writer, files []file, at time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// sums writes SHA256SUMS, which sha256sum -c reads, for all files of a folder.
func sums(folder string) error {
	entries, err := os.ReadDir(folder) // sorted
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(b.String()), 0o644)
}
