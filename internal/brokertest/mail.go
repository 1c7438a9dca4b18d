package brokertest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// MailServer runs the mail server of scripts/smtp, and returns its port and the folder in which it
// keeps mails as 1.eml, 2.eml and so on. Without the server the test fails: only
// DLXCTL_TEST_SMTP=skip skips it.
func MailServer(t *testing.T, env ...string) (port, folder string) {
	t.Helper()
	if os.Getenv("DLXCTL_TEST_SMTP") == "skip" {
		t.Skip("DLXCTL_TEST_SMTP=skip: NO MAIL IS TESTED")
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	server := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/smtp"), folder)
	server.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	server.Stderr = &said
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Wait() }()
	t.Cleanup(func() { _ = input.Close(); <-ended })
	var data []byte
	Eventually(t, "the mail server", func() bool {
		select {
		case <-ended:
			t.Fatalf("scripts/smtp failed:\n%s", &said)
		default:
		}
		data, err = os.ReadFile(filepath.Join(folder, "port"))
		return err == nil
	})
	return string(data), folder
}
