package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

const (
	// walSegmentBytes is what etcd preallocates a log segment, twice. Its default of 64 MB suits a server, not a laptop.
	walSegmentBytes = 4 << 20
	// storeQuotaBytes is where etcd starts to refuse writes.
	storeQuotaBytes = 2 << 30
	storeStartLimit = 30 * time.Second
)

func init() { wal.SegmentSizeBytes = walSegmentBytes }

// store is an etcd in this process. It listens on a socket that only this user can reach, because etcd itself asks
// nobody who they are.
type store struct {
	etcd      *embed.Etcd
	ballast   *ballast
	endpoint  string
	socketDir string
	stopping  atomic.Bool
}

// startStore opens the etcd in dir and returns when it takes writes.
func startStore(ctx context.Context, dir string, log *slog.Logger) (*store, error) {
	socketDir, err := privateSocketDir(dir)
	if err != nil {
		return nil, err
	}
	s := &store{socketDir: socketDir}
	socket := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "etcd.sock")}
	if err := removeStale(socket.Path); err != nil {
		return nil, err
	}
	s.endpoint = socket.String()

	cfg := embed.NewConfig()
	cfg.Name = "agentbox"
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ListenClientUrls = []url.URL{socket}
	cfg.AdvertiseClientUrls = []url.URL{socket}
	cfg.ListenPeerUrls = nil
	// Part of the data of the only member; nothing listens there.
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// One member elects itself: a short election only shortens the start.
	cfg.TickMs, cfg.ElectionMs = 10, 50
	cfg.PreVote = false
	// Entries between snapshots stay in memory and are replayed by a start.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, 100
	cfg.MaxWalFiles, cfg.MaxSnapFiles = 2, 2
	cfg.QuotaBackendBytes = storeQuotaBytes
	cfg.BackendFreelistType = "map"
	cfg.BootstrapDefragThresholdMegabytes = 64
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "10m"
	cfg.MaxRequestBytes = 2 << 20
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapToSlog{log, &s.stopping}))

	s.ballast = startBallast(filepath.Join(dir, "ballast"), log)
	if s.etcd, err = embed.StartEtcd(cfg); err != nil {
		s.ballast.close()
		s.removeSocketDir()
		return nil, fmt.Errorf("open the store in %s: %w; if the disk is full, free space; if the data is damaged, restore a copy or start with another data directory", cfg.Dir, err)
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return s, nil
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		err = fmt.Errorf("it stopped while starting")
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(storeStartLimit):
		err = fmt.Errorf("it took no writes within %s; see whether the disk is very slow or full", storeStartLimit)
	}
	s.stop()
	return nil, fmt.Errorf("start the store in %s: %w", cfg.Dir, err)
}

func (s *store) stop() {
	s.stopping.Store(true)
	s.etcd.Close()
	s.ballast.close()
	s.removeSocketDir()
}

func (s *store) removeSocketDir() { _ = os.RemoveAll(s.socketDir) }
