//! The traits by which async crates read and write, each behind its cargo feature.

#[cfg(feature = "futures-io")]
mod of_futures {
    use std::io::{self, IoSlice};
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_io::{AsyncRead, AsyncWrite};

    use crate::net::AsyncTcpStream;

    impl AsyncRead for AsyncTcpStream {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Self::poll_read(self.get_mut(), cx, buf)
        }
    }

    impl AsyncWrite for AsyncTcpStream {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write(self.get_mut(), cx, buf)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write_vectored(self.get_mut(), cx, bufs)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.get_ref().shutdown(Shutdown::Write))
        }
    }
}

#[cfg(feature = "tokio-io")]
mod of_tokio {
    use std::io::{self, IoSlice};
    use std::net::Shutdown;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use crate::net::AsyncTcpStream;

    impl AsyncRead for AsyncTcpStream {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let read = ready!(Self::poll_read(
                self.get_mut(),
                cx,
                buf.initialize_unfilled()
            ))?;
            buf.advance(read);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for AsyncTcpStream {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write(self.get_mut(), cx, buf)
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Self::poll_write_vectored(self.get_mut(), cx, bufs)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.get_ref().shutdown(Shutdown::Write))
        }
    }
}
